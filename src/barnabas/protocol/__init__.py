"""Bytes on the wire: messages, their codecs, headers and frames."""
