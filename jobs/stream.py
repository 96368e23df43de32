"""spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 jobs/stream.py --config conf/demo.yaml."""

from palearn.cli import stream_job

if __name__ == "__main__":
    stream_job()
