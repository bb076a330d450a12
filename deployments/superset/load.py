"""Import the dashboard into Apache Superset, with the warehouse that SUPERSET_STEF_URI names.

    SUPERSET_STEF_URI=postgresql://bi@db.example/stef python deployments/superset/load.py

Run it in Superset's environment, where the command ``superset`` is; it needs nothing else. Running it again brings database
connection, datasets, charts and dashboard up to date, and leaves everything else in Superset alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

BUNDLE = Path(__file__).parent / "bundle"
VARIABLE = "SUPERSET_STEF_URI"
PLACEHOLDER = "postgresql://bi@db.example/stef"
REFUSED = "An error occurred"  # Superset logs it and exits with 0


def files(uri: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of the bundle, with the warehouse's URI in the place of the placeholder.

    Args:
        uri: SQLAlchemy URI of the PostgreSQL warehouse.
    """
    for path in sorted(BUNDLE.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "databases":
            text = text.replace(PLACEHOLDER, json.dumps(uri))  # a JSON string is a YAML string
        yield path.relative_to(BUNDLE).as_posix(), text


def pack(file: Path, uri: str) -> None:
    """Write the bundle as a ZIP file for an upload by hand, readable by its owner alone, as the URI may hold a password."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files(uri):
            archive.writestr(f"stef/{name}", text)


def load(uri: str) -> int:
    """Hand the bundle to Superset; 0, or an exit code that says it went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files(uri):
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603  # a folder of our own
                ["superset", "import-directory", "--overwrite", folder],  # noqa: S607  # of the environment it runs in
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            print("the command superset is not on the path: activate Superset's environment", file=sys.stderr)
            return 2
    if done.returncode or REFUSED in done.stdout:
        print(done.stdout, file=sys.stderr)
        return done.returncode or 1
    print("imported: /superset/dashboard/stef/")
    return 0


def main() -> int:
    """Read the command line and the environment; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zip", type=Path, help="write the bundle to this file and import nothing")
    arguments = parser.parse_args()
    uri = os.environ.get(VARIABLE, "")
    if not uri.startswith(("postgresql:", "postgresql+")):
        print(f"{VARIABLE} must hold the URI of the PostgreSQL warehouse, e.g. {PLACEHOLDER}", file=sys.stderr)
        return 2
    if arguments.zip:
        pack(arguments.zip, uri)
        return 0
    return load(uri)


if __name__ == "__main__":
    sys.exit(main())
