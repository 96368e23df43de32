"""spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 jobs/replay.py --config conf/demo.yaml."""

from palearn.cli import replay_job

if __name__ == "__main__":
    replay_job()
