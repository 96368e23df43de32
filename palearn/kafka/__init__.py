"""A Kafka broker for one machine, and a producer of files. Nothing here knows of Spark."""
