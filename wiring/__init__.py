"""Between a plug-in and its users: configuration, the final Reader and Writer.

Applications use `streamfactory.open`; Spark, the command line and the conformance kit
use the modules here. Authors of backends need only `streamfactory.spi`.
"""
