"""Wheels made on the fly, with what they require and whatever files they should have."""

import base64
import hashlib
import zipfile


def make_wheel(folder, name, version, *, requires=(), files=None, tag="py3-none-any"):
    """Write a wheel with an honest RECORD; `files` is name -> bytes, a module of the package's name by default."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = files if files is not None else {f"{name}.py": f"version = {version!r}\n".encode()}
    content = {
        **content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for one, data in content.items():
            out.writestr(zipfile.ZipInfo(one, (2020, 2, 2, 2, 2, 2)), data)
        record = "".join(f"{one},{record_hash(data)},{len(data)}\n" for one, data in content.items())
        out.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 2, 2, 2, 2, 2)), f"{record}{info}/RECORD,,\n")
    return path


def record_hash(data):
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"


def record_of(wheel):
    """What a wheel's RECORD says of each file but itself, and what is in the wheel, in the same form."""
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        lines = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        said = {name: (digest, size) for name, digest, size in lines if name != record}
        data = {name: archive.read(name) for name in archive.namelist() if name != record}
        return said, {name: (record_hash(one), str(len(one))) for name, one in data.items()}
