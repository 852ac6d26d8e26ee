"""Makes a file of another weight type out of a GGUF file: requantise.py FROM TO {Q4_0,Q8_0}

Every matrix is decoded and stored in the new type; vectors, metadata and tokenizer stay. Two files made this way
hold the same model (that of FROM), so their decode rates compare the types alone. Their quality is that of a
second rounding: good for timing, not for serving."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402


def copy_fields(reader, writer, gguf):
    own = ("GGUF.", "general.architecture", "general.file_type")
    for field in reader.fields.values():
        if field.name.startswith(own):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)


def main(source, target, name):
    import gguf
    kind = gguf.GGMLQuantizationType[name]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target + ".part", reader.fields["general.architecture"].contents())
    copy_fields(reader, writer, gguf)
    for tensor in reader.tensors:
        data, stored = tensor.data, tensor.tensor_type
        if len(tensor.shape) == 2:
            data, stored = gguf.quants.quantize(gguf.quants.dequantize(data, stored), kind), kind
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(target + ".part", target)


if len(sys.argv) != 4 or sys.argv[3] not in ("Q4_0", "Q8_0"):
    sys.exit(__doc__)
pypi.run_with("gguf", ["gguf==0.19.0"], sys.exit)
main(*sys.argv[1:])
