"""How help is laid out: commands in groups, the options that matter first, an example for each command."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

#: Commands in the order in which help shows them.
COMMANDS = {
    "Try": ("demo", "demo-two-view", "demo-s3", "evaluate", "search", "init", "generate", "broker", "store"),
    "Run": ("check", "produce", "stream", "replay", "serve"),
    "Look": ("report", "watch", "models", "predict", "learners"),
    "Maintain": ("capacity", "compact", "forget", "state", "prepare", "reproduce"),
}
#: Options that are not among the first, in groups; every command's are looked up here.
OPTIONS = {
    "Learning": (
        "--bias", "--tie", "--drift", "--views", "--epochs", "--shuffle", "--repeats", "--holdout", "--choose",
    ),
    "Reading files": (
        "--format", "--names", "--column", "--delimiter", "--header", "--encoding", "--decimal", "--key-feature",
    ),
    "Output": ("--plot", "--html", "--write", "--resume", "--out", "--json"),
    "Other": ("--set", "--master", "--debug", "--log-format", "--help"),
}  # fmt: skip
#: Command -> what to type; a test parses each.
EXAMPLES = {
    "demo": ["palearn demo"],
    "demo-two-view": ["palearn demo-two-view"],
    "evaluate": [
        "palearn evaluate a9a --learner arow --learner pa1",
        "palearn evaluate mails.csv --label verdict --positive spam --key user --learner arow -p r=0.1",
    ],
    "search": [
        "palearn search a9a --learner arow --grid r=2^-4:2^4",
        "palearn search mails.csv --label verdict --positive spam --key user --learner arow --write learners.yaml",
    ],
    "init": [
        "palearn init mails.csv --label verdict --key user --write mails.yaml",
        "palearn init mails --write mails.yaml",
    ],
    "generate": ["palearn generate --records 100000 --keys 1000 --drift abrupt --out stream.jsonl"],
    "demo-s3": ["palearn demo-s3"],
    "check": ["palearn check --config mails.yaml"],
    "forget": ["palearn forget alice --config mails.yaml"],
    "store start": ["palearn store start"],
    "store stop": ["palearn store stop"],
    "store status": ["palearn store status --json"],
    "broker start": ["palearn broker start"],
    "broker stop": ["palearn broker stop"],
    "broker status": ["palearn broker status --json"],
    "produce": ["palearn produce mails.csv --topic mails --key user --label verdict"],
    "stream": [
        "palearn stream --config mails.yaml",
        "palearn stream --config mails.yaml --set trigger=10s",
        "palearn stream --config new.yaml --warm-start out",
    ],
    "replay": [
        "palearn replay --config mails.yaml --set output.path=replayed",
        "palearn replay --config mails.yaml --input mails.jsonl --set output.path=replayed",
    ],
    "serve": [
        "palearn serve out",
        "palearn serve out --host 0.0.0.0 --port 8750 --token-file token --certificate own.pem --private-key own.key",
    ],
    "report": ["palearn report out", "palearn report out --html report.html --plot error.png"],
    "watch": ["palearn watch out"],
    "models": ["palearn models out", "palearn models out --key alice --learner arow --top 20"],
    "predict": [
        "palearn predict out mails.csv --key user --label verdict",
        "palearn predict out - --format jsonl --key user < new.jsonl",
    ],
    "learners": ["palearn learners --json"],
    "capacity": ["palearn capacity --config mails.yaml --keys 1000000 --cores 8"],
    "compact": ["palearn compact out --keep 10"],
    "state export": ["palearn state export checkpoint exported"],
    "prepare": ["palearn prepare"],
    "reproduce": ["palearn reproduce arow"],
}

_PANELS = {name: panel for panel, names in (COMMANDS | OPTIONS).items() for name in names}
_ORDER = [name for names in COMMANDS.values() for name in names]


class PanelGroup(TyperGroup):
    """Commands in the order and groups of this module."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of :data:`COMMANDS`; a name that it lacks is last."""
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its group, the groups of its options, and its example."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            parent = getattr(self, "path", "")
            arrange(command, f"{parent} {cmd_name}".strip())
        return command


def arrange(command: Any, path: str) -> None:
    """Lay out one command's help; ``path`` is what is typed after ``palearn``."""
    command.rich_help_panel = _PANELS.get(path)
    if isinstance(command, TyperGroup):
        command.path = path  # type: ignore[attr-defined]
    elif isinstance(command, TyperCommand):
        for option in command.params:
            if option.param_type_name == "option":
                option.rich_help_panel = _PANELS.get(option.opts[-1])  # type: ignore[attr-defined]
        if examples := EXAMPLES.get(path):
            heading = "Example:" if len(examples) == 1 else "Examples:"
            command.epilog = "\n\n".join([heading, *(f"  {line}" for line in examples)])
