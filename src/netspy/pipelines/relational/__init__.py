"""What SQL stores share: values exactly as given, columns, tables, statements."""
