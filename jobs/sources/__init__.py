"""Where jobs read from: Kafka, files, databases, other tables, behind one small protocol."""
