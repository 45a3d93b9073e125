"""Builds the wheel (PEP 517 and 427) with nothing but Python: `python3 build_backend.py <folder>` prints its path."""

import base64
import hashlib
import sys
import tomllib
import zipfile
from pathlib import Path

here = Path(__file__).parent
scripts = here.parents[1] / "docs" / "tool-protocol" / "scripts.json"


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    project = tomllib.loads((here / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    about = f"{name}-{version}.dist-info"
    contents = {f"{name}/{path.name}": path.read_bytes() for path in sorted((here / name).glob("*.py"))}
    contents[f"{name}/{scripts.name}"] = scripts.read_bytes()
    contents[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {project['description']}\n"
        f"Requires-Python: {project['requires-python']}\nLicense-Expression: {project['license']}\n"
    ).encode()
    contents[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: larkline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{path},sha256={digest(data)},{len(data)}" for path, data in contents.items()]
    contents[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    file = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in contents.items():
            # Always the same time: the same sources make the same bytes.
            wheel.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return file


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


if __name__ == "__main__":
    print(Path(sys.argv[1]) / build_wheel(sys.argv[1]))
