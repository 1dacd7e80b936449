"""The framework between plug-ins and users: configuration, Reader, Writer, Committer.

Applications use `streamfactory.open`; Spark, the command line and the conformance kit
use the modules here. Authors of backends need only `streamfactory.spi`.
"""
