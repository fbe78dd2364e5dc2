"""What the site is made of: the pages of the repository, and a reference of its names.

The pages keep their paths, so that a link leads to the same place in the repository
and on the site; every file that a page links to comes along. Formulas become MathML,
which browsers draw by themselves.
"""

import ast
import html
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/**/*.md", "recipes/*.md", "benchmarks/**/*.md")
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)
NORM = re.compile(r"\\lVert (.*?) ?\\rVert")
FETCHED = re.compile(
    r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]*'
)
MODULES = (
    "smoothsp",
    "smoothsp.oracles",
    "smoothsp.losses",
    "smoothsp.losses.functional",
    "smoothsp.constraints",
    "smoothsp.metrics",
    "smoothsp.schemes",
    "smoothsp.testing",
    "smoothsp.data",
    "smoothsp.figures",
    "smoothsp.models",
    "smoothsp.models.localiser",
    "smoothsp.models.tagger_options",
    "smoothsp.optim",
    "smoothsp.optim.schedules",
    "smoothsp.training",
    "smoothsp.atomic_files",
    "smoothsp.checkpoints",
    "smoothsp.divergence",
    "smoothsp.run_folder",
    "smoothsp.lightning",
    "smoothsp.hugging_face",
    "smoothsp.projections",
    "smoothsp.linear",
    "smoothsp.linear.features",
    "smoothsp.linear.problems",
    "smoothsp.linear.scorers",
    "smoothsp.linear.solvers",
)
OFTEN = {
    f"reference/{module}.md"
    for module in ("smoothsp", "smoothsp.oracles", "smoothsp.losses", "smoothsp.models")
}


def pages() -> list[Path]:
    return sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})


def linked_files() -> set[Path]:
    """Files that are no pages, and that pages link to."""
    found = set()
    for page in pages():
        for target in LINK.findall(page.read_text()):
            path = (page.parent / target).resolve()
            if path.is_file() and path.suffix != ".md" and ROOT in path.parents:
                found.add(path)
    return found


def names(module: str) -> list[str]:
    """What a module makes public: ``__all__``, or what has no underscore."""
    own = []
    for node in ast.parse(source(module).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
            own.append(node.name)
    return own


def documented(module: str) -> list[str]:
    """The names of a module but for the modules, which have pages of their own."""
    return [x for x in names(module) if f"{module}.{x}" not in MODULES]


def reference() -> dict[str, str]:
    """Pages of the reference by their paths: a directive for each public name."""
    found = {}
    index = ["# Reference", "", "Every public name, by module.", ""]
    for module in MODULES:
        summary = ast.get_docstring(ast.parse(source(module).read_text())) or ""
        first = summary.partition("\n")[0].replace("``", "`")
        own = documented(module)
        lines = [f"# {module}", "", first, ""]
        lines += [f"::: {module}.{x}\n" for x in own]
        found[f"reference/{module}.md"] = "\n".join(lines)
        links = [f"[`{x}`]({module}.md#{module}.{x})" for x in own]
        index += [f"## {module}", "", first, "", f"{', '.join(links)}.", ""]
    return {"reference/index.md": "\n".join(index), **found}


def source(module: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, what they link to, and the reference."""
    from mkdocs.structure.files import File

    for path in [*pages(), *sorted(linked_files())]:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, text in reference().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    page.meta["search"] = {"boost": weight(page.file.src_uri)}
    if page.file.src_uri == "README.md":
        page.meta["hide"] = ["navigation", "toc"]
        markdown = front(markdown)
    return with_lists_apart(markdown)


def front(markdown: str) -> str:
    """The first screen in two columns: text, buttons and picture; code and output."""
    first, heading, rest = markdown.partition("\n## ")
    parts = r"(.*?)(```python.*?)(^!\[.*)"
    head, code, picture = re.fullmatch(parts, first, re.DOTALL | re.MULTILINE).groups()
    head = re.sub(r"^(\[.*?\]\(.*?\))$", r"\1{ .md-button }", head, flags=re.M)
    columns = (f"<div markdown>\n{x}\n</div>" for x in (head + picture, code))
    begin = '<div class="front" markdown>'
    return "\n".join([begin, *columns, "</div>", heading + rest])


def weight(name: str) -> float:
    """Of a page in the search: guides, names that many use, other names, tables."""
    if name.startswith(("benchmarks/", "docs/reproduction", "docs/results/")):
        return 0.05
    if name in ("CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md"):
        return 0.05
    if name.startswith("reference/"):
        return 1.0 if name in OFTEN else 0.3
    return 1.5


def on_page_content(content: str, **_: Any) -> str:
    return with_formulas(content)


def on_post_build(config: Any) -> None:
    """Stop where the reference lacks a name, or where something would be fetched."""
    site = Path(config["site_dir"])
    for module in MODULES:
        text = (site / f"reference/{module}.html").read_text()
        for name in documented(module):
            if f'id="{module}.{name}"' not in text:
                raise ValueError(f"the reference has no {module}.{name}")
    for page in site.rglob("*.html"):
        text = page.read_text()
        if FORMULA.search(text):
            raise ValueError(f"{page}: formulas are not MathML")
        fetched = FETCHED.search(text)
        if fetched:
            raise ValueError(f"{page}: {fetched[0]} would be fetched")


def with_lists_apart(markdown: str) -> str:
    """Blank lines before lists, which this Markdown asks for."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        item = re.match(r"(?:- |\d+\. )", line)
        after_text = lines and re.match(r"(?!\d+\. )[^\s\-|#]", lines[-1])
        if item and after_text and not fenced:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def with_formulas(content: str) -> str:
    """MathML in place of TeX."""
    from latex2mathml.converter import convert

    def drawn(match: re.Match[str]) -> str:
        _, bracket, tex = match.groups()
        tex = NORM.sub(r"{\\lVert \1 \\rVert}", html.unescape(tex).strip())
        return str(convert(tex, display="inline" if bracket == "(" else "block"))

    return FORMULA.sub(drawn, content)
