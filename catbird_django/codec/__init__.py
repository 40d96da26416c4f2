"""Typed Python values to JSON text and back, checked before any SQL; docs/explanation/codec.md has the rules."""

from __future__ import annotations

from catbird_django.codec.codec import Codec, codec_for
from catbird_django.codec.describe import Field, FieldKind
from catbird_django.codec.limits import MAX_DEPTH, MAX_DIGITS
from catbird_django.codec.untyped import Json, decode_any, encode_any

__all__ = [
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Codec",
    "Field",
    "FieldKind",
    "Json",
    "codec_for",
    "decode_any",
    "encode_any",
]
