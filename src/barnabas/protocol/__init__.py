"""Bytes on the wire: messages, their codecs, the table of APIs, and frames."""
