"""The only Spark code of the library: Java, jars, session, staging, publishing.

Owns everything that runs in the JVM. Must never be imported by what only reads.
"""
