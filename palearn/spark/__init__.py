"""The Spark job: the only package that imports pyspark. It moves records and bytes; :mod:`palearn.bucket` learns."""
