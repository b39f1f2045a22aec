"""What secrets look like: a row for each form, found by a literal that every match begins with, so that a log is searched at the speed of memory.

The forms are those that the issuers of tokens and the manuals of the commands state. After a name (`HF_TOKEN=`, `"password": `, `--api-key `) the name and
the value decide together: `bos_token=<s>`, `tokens: 4096` and `key=args.key` are no secrets.
"""

import re
from typing import NamedTuple

MAX_WORD = 300  # bytes of a value without quotes by which it is judged; all of it goes
_VALUE = (
    rb"""(?P<value>b?\\{1,3}"[^"\\\n]{1,4000}\\{1,3}"|b?"(?:[^"\\\n]|\\.){1,4000}"|b?'[^'\n]{1,4000}'|[^\s"'<>`]{1,%d})"""
    % MAX_WORD
)
_PAIR = rb"""\\{0,3}["']?(?:,\s{0,99}|[ \t]{0,3}\r?\n[ \t]{0,99})\\{0,3}["']?value\\{0,3}["']?[ \t]{0,3}:[ \t]{0,3}"""
"""Between a name and its value in a list of variables: {"name": "A", "value": "b"}, in YAML on two lines."""
_IS = (
    rb"""(?P<sep>%b|\\{0,3}["']?\]?[ \t]{0,3}(?:=>|:=|[=:](?!=))[ \t]{0,3}|[ \t]\.{2,}[ \t]|>(?=[^<\n]{1,500}</)|[ \t]+(?:\||\xe2\x94\x82)[ \t]+|[ \t]{1,40}|["'],[ \t]{0,2}(?=["'])(?!["'][\w.-]{1,40}["'][ \t]{0,2}:))"""
    % _PAIR
)

_OF_KEY = re.compile(
    rb"[A-Za-z0-9+/=]{40,}|(?:^|(?<=[\]:>|])|(?<=[\]:>|] ))[A-Za-z0-9+/=]{4,}(?=(?:\\n|\s)*$)", re.MULTILINE
)


class Rule(NamedTuple):
    """One form of a secret."""

    name: str  # its name in reports
    lead: bytes  # the literal with which each match begins
    form: bytes  # what follows the lead: an expression with a group `value`, or all of whose match is the secret
    is_lower: bool = False  # searched in the text in lower case
    is_named: bool = False  # the value follows a name, which `is_secret_value` judges
    after: "re.Pattern[bytes] | None" = None  # what must precede the lead
    parts: "re.Pattern[bytes] | None" = None
    """What of the value is blacked out, where that is not all of it: log lines of others may stand between those of a key."""


_TOKENS = r"""
Hugging Face|hf_|[A-Za-z0-9]{16,}
Hugging Face|api_org_|[A-Za-z0-9]{16,}
GitHub|gh|[pousr]_\w{16,}
GitHub|github_pat_|\w{20,}
GitLab|gl|(?:pat|dt|rt|cbt|ptt|soat|ft|agent)-[\w.-]{16,}
AWS|A|[KS]IA[0-9A-Z]{16}(?:[\s,:;"']{1,4}[A-Za-z0-9/+=]{40}(?![\w/+=]))?
Slack|xox|[abeoprs][-.][\w.-]{10,}
Slack|xapp-|[\w-]{16,}
NVIDIA|nvapi-|[\w-]{16,}
JSON web|eyJ|[\w-]{8,2000}\.[\w-]{8,8000}\.[\w-]{4,}
OpenAI or Anthropic|sk-|[\w-]{20,}
Stripe|k_live_|\w{16,}
Google|AIza|[\w-]{35}
Google|ya29.|[\w.-]{20,}
Google|GOCSPX-|[\w-]{20,}
npm|npm_|[A-Za-z0-9]{30,}
PyPI|pypi-AgE|[\w-]{50,}
Docker|dckr_pat_|[\w-]{20,}
DigitalOcean|dop_v1_|[a-f0-9]{60,}
SendGrid|SG.|[\w-]{16,99}\.[\w-]{30,}
HashiCorp|hvs.|[\w-]{20,}
Databricks|dapi|[0-9a-f]{32}
Groq|gsk_|[A-Za-z0-9]{40,}
Replicate|r8_|[A-Za-z0-9]{30,}
Atlassian|ATATT3|[\w=-]{50,}
JFrog|AKCp|[A-Za-z0-9]{50,}
Grafana|glsa_|\w{30,}
Weights & Biases|wandb_v1_|\w{30,}
Weights & Biases|local-|[0-9a-f]{40}
age|AGE-SECRET-KEY-1|[A-Z0-9]{50,}
MUNGE|MUNGE:|[A-Za-z0-9+/=]{40,}
"""
"""Issuer, lead and rest of the tokens that are known by their form."""
_WORD = rb"""['"]?(?P<value>[^\s'"|;&]+)"""
_LINE = rb"[^\n|;&]{0,300}?"
_TO_A_LOGIN = (
    rb"""['"]?(?P<value>[^\s'"|]{4,})['"]?[ \t]*\|[^\n|;]{0,100}?(?:sudo -s|-stdin|passwd|--with-token|login|kinit)"""
)
RULES = (
    *(Rule(f"{issuer} token", lead.encode(), rb"(?<![A-Za-z0-9]" + re.escape(lead.encode()) + rb")" + rest.encode()) for issuer, lead, rest in (row.split("|", 2) for row in _TOKENS.split("\n") if row)),
    Rule("private key", b"-----BEGIN ", rb"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<value>(?s:(?:(?!-----).){1,20000}))", parts=_OF_KEY),
    Rule("user and password in a URL", b"://", rb"(?P<value>[^\s/@:\"'<>]{0,200}:(?!\d{1,5}(?:[/?#]|$))(?:(?!://)[^\s\"'<>]){1,500})@(?=[\w\[.-])"),
    Rule("user or token in a URL", b"http", rb"s?://(?P<value>[^\s/@:?#\"'<>]{8,500})@", is_lower=True),
    Rule("signature of a URL", b"sig", rb"(?:(?<=[?&;]sig)|nature(?<=[?&;-]signature))=(?P<value>[^\s&\"'<>]{6,})", is_lower=True),
    Rule("key of a URL", b"key=", rb"(?<=[?&]key=)(?P<value>[^\s&\"'<>]{16,})", is_lower=True),
    Rule("webhook", b"hook", rb"[\w.-]{0,40}/(?P<value>[^\s\"'<>]{16,})", is_lower=True, after=re.compile(rb"https?://[^\s\"'<>]*$")),
    Rule("webhook", b"api.telegram.org/bot", rb"(?P<value>[^\s/\"'<>]{10,})", is_lower=True),
    Rule("authorization", b"authorization", rb"""\\{0,3}["']?\s{0,3}[:=]\s{0,3}\\{0,3}["']?(?:(?:bearer|basic|token|digest|apikey|negotiate|bot)[ \t]+)?(?P<value>[^"'\n\\]{6,})""", is_lower=True),
    Rule("authorization", b"bearer ", rb"(?P<value>[\w+/=.~-]{16,})", is_lower=True),
    Rule("cookie", b"cookie: ", rb"(?P<value>[^\s\"';]{3,}=[^\n\"']{6,})", is_lower=True),
    Rule("cookie", b"magic-cookie-1", rb"\s+(?P<value>[0-9a-f]{32})", is_lower=True),
    Rule("key of an account", b'"key"', rb'[ \t]*:[ \t]*"(?P<value>[0-9a-f]{32,})"', is_lower=True),
    Rule("key of an account", b"api key ", rb"(?P<value>[0-9a-f]{32,})", is_lower=True),
    Rule("password of a command", b"curl", rb"[^\n]{0,300}?\s(?:-u|--user|--proxy-user)[ =]?['\"]?[^\s:'\"]{1,100}:(?P<value>[^\s'\"]+)", is_lower=True),
    *(Rule("password of a command", lead, _LINE + rb"\s-p[ \t]{0,2}" + _WORD, is_lower=True) for lead in (b"mysql", b"mariadb", b"sshpass", b" login", b"ipmitool")),
    Rule("password of a command", b"openssl", _LINE + rb"\s(?:-k[ \t]{1,2}|-pass(?:in|out)?[ \t]{1,2}pass:)" + _WORD, is_lower=True),
    Rule("password of a command", b"ssh-keygen", _LINE + rb"\s-n[ \t]{1,2}" + _WORD, is_lower=True),
    Rule("password of a command", b"zip", rb"[ \t]" + _LINE + rb"(?<=[ \t])-P[ \t]{0,2}" + _WORD),
    Rule("password of a command", b"--from-literal=", rb"[\w.-]{1,60}=" + _WORD, is_lower=True),
    Rule("password of a command", b"send ", rb"""(?:-- )?["'](?P<value>[^"'\\\n]{4,})(?:\\r|\\n)""", after=re.compile(rb"assword[^\n]*$")),
    Rule("password of a command", b"redis-cli", _LINE + rb"\s-a[ \t]{1,2}" + _WORD, is_lower=True),
    Rule("password of a command", b"ldap", rb"\w{1,20} " + _LINE + rb"\s-w[ \t]{0,2}" + _WORD, is_lower=True),
    Rule("password of a command", b"smbclient", _LINE + rb"\s-u[ \t]{0,2}[^\s%]{1,100}%" + _WORD, is_lower=True),
    Rule("password of a command", b" login", rb"(?:(?<=wandb login)|(?<=vault login))(?:[ \t]+--?[\w-]+(?:=\S+)?){0,4}[ \t]+['\"]?(?P<value>[\w.=-]{16,})", is_lower=True),
    Rule("password of a command", b"<<<", rb"""[ \t]*['"]?(?P<value>[^\s'"<]{6,})""", after=re.compile(rb"(?:-token|-stdin|login|passwd|sudo)[^\n|;]*$")),
    Rule("password of a command", b"printf ", rb"""['"]?%s(?:\\n)?['"]? """ + _TO_A_LOGIN, is_lower=True),
    Rule("password of a command", b"echo ", rb"""(?:-n[ \t]+)?""" + _TO_A_LOGIN, is_lower=True),
    *(
        Rule("value of a secret's name", lead, rb"(?P<name>" + right + rb")" + _IS + _VALUE, is_lower=True, is_named=True)
        for lead, right in (
            (b"pass", rb"(?:(?:w|phrase|code)[\w.-]{0,40})?"), (b"secret", rb"[\w.-]{0,40}"), (b"cred", rb"(?:s|ential[\w.-]{0,40})?"), (b"token", rb"(?![a-z])[\w.-]{0,40}"),
            (b"key", rb"(?:(?<=[_.-]key)|(?<=apikey)|(?<=api key)|(?<=accesskey)|(?<=accountkey)|(?<=privatekey))(?![a-z])[\w.-]{0,40}"), (b"auth", rb""), (b"jwt", rb""), (b"pwd", rb""),
            (b"_pat", rb""), (b"_sas", rb""), (b"_dsn", rb""), (b"cookie", rb""), (b"webhook", rb"[\w.-]{0,40}"),
        )
    ),
)  # fmt: skip

_PASSWORD = re.compile(
    rb"passw|passphrase|passcode|storepass|sshpass|[_.-]pwd$|(?:db|user|admin|root|ftp|smtp|mail|mysql|redis|proxy|http|ldap|login)[_.-]?pass$"
)
_NAME = re.compile(
    rb"secret|credential|api[_. -]?key|webhook|jwt|cookie|(?:access|account|private|shared|auth|encryption|signing|master|license|ssh|client|consumer|subscription|storage|wandb"
    rb"|openai|hf|ngc|comet|neptune|azure|aws|nvidia)[_.-]?key|(?:access|auth|hf|hub|wandb|github|gitlab|api|refresh|private|ngc|comet|neptune|mlflow|session|security|identity"
    rb"|bearer|job|registry|bot|deploy|oauth|personal|login|service|id)[_.-]?token$"
)
_VARIABLE = re.compile(rb"token(?!i[sz]|s(?![a-z]))|_(?:pass|pat|key|auth|sas|dsn|creds?|sig)$")
_OF_MODEL = re.compile(
    rb"(?:bos|eos|pad|unk|sep|cls|mask|special|image|eod|sot|eot|next|last|new|num|per|max|prefix|suffix|stop|start|end)_?token|token_?(?:id|type|dispatcher|drop|count|idx|index)"
)
_HARMLESS = re.compile(
    rb"\*{3,}|x{3,}|\.{2,}|none|null|nil|true|false|yes|no|unset|\\*|\[?redacted\]?|<[^<>]*>|[({\[]+|\[\w*\]?|\$\{?\w+\}?|\$[({].*|\{+[\w. ]*\}+|%\w+%?|;\s.*"
    rb"|(?:os|self|args|config|cfg|getpass|input|str|get)\b[\w.]*[.(\[].*",
    re.DOTALL | re.IGNORECASE,
)
_NUMBER = re.compile(rb"[-+.,\d%/eE]*")
_PATH = re.compile(rb"(?:file:/|~|\.{1,2})?/(?:[\w.+-]+/)+[\w.+-]*")
_RANDOM = re.compile(rb"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\w+/=.~:%!@#$^&*?-]{8,}")
_CAPITALS = re.compile(rb"[A-Z]+(?:[0-9]*_[A-Z0-9]+)*")
_BASE64 = re.compile(rb"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=]{8,}")
_PASS_OPTION = re.compile(rb"-pass(?:in|out)?\s+$")
_AFTER_A_LOGIN = re.compile(rb"(?:machine|login|user|account)\s+\S+\s+$")
OF_A_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


def is_harmless(value: bytes) -> bool:
    """Return whether a value is no secret in itself: a word such as none, a placeholder, the name of a variable, code."""
    return bool(_HARMLESS.fullmatch(value.strip(b"\\\"'")))


def is_secret_variable(name: bytes, value: bytes) -> bool:
    """Return whether a variable of the environment holds a secret by its name; paths, words and (after other names than a password's) numbers are none."""
    lower = name.lower()
    is_pass = is_password(name)
    if _OF_MODEL.search(lower) or not (is_pass or _NAME.search(lower) or _VARIABLE.search(lower)):
        return False
    return not (is_harmless(value) or _PATH.fullmatch(value) or (not is_pass and _NUMBER.fullmatch(value)))


def is_password(name: bytes) -> bool:
    """Return whether what is called `name` is a password or a phrase, which may have blanks in it."""
    return bool(_PASSWORD.search(name.lower()))


def is_secret_value(before: bytes, name: bytes, sep: bytes, value: bytes) -> bool:
    """Return whether `value`, after `name` and `sep`, is a secret; `before` is the text before the name."""
    front = before.rstrip(OF_A_NAME)
    name, before = before[len(front) :] + name, front
    if before[-4:].lower() == b"api ":  # API key: ...
        name = b"api_" + name
    value, lower, how = value.strip(b"\\\"'"), name.lower().lstrip(b"-"), sep.strip()
    if (
        how in {b"", b"',", b'",'}
        and not name.startswith(b"--")
        and not before.rstrip().endswith((b"setenv", b"ENV", b" set", b"set -x", b"set -gx", b"set -Ux"))
        and not (name.isupper() and _is_of_a_variable(name, sep, value))
    ):
        return lower == b"password" and bool(_AFTER_A_LOGIN.search(before)) and not is_harmless(value)
    if before.endswith(b"://"):  # the rule of URLs covers it
        return False
    if value.lower() in lower or lower in {b"pwd", b"pass", b"auth"}:
        return _is_secret_of_a_word(before, name, sep, value)
    is_random = bool(_RANDOM.fullmatch(value)) and not _PATH.fullmatch(value)
    is_prose = how == b":" or not how.strip(b"|\xe2\x94\x82")
    if name.isupper() or is_password(name) or _NAME.search(lower):
        is_known = is_secret_variable(name, value)
        return is_known and (is_random or not is_prose or name.isupper() or is_password(name))
    return (
        b"token" in lower
        and not _OF_MODEL.search(lower)
        and is_random
        and not (is_harmless(value) or _NUMBER.fullmatch(value))
    )


def _is_of_a_variable(name: bytes, sep: bytes, value: bytes) -> bool:
    """Judge a value beside a name in capitals, in quotes with a comma between, or in columns: it is no other name and no sentence."""
    if sep.isspace():
        return sep != b" " and bool(_RANDOM.fullmatch(value))
    return not _CAPITALS.fullmatch(value) and (is_password(name) or b" " not in value)


def _is_secret_of_a_word(before: bytes, name: bytes, sep: bytes, value: bytes) -> bool:
    """Judge a value after names that have other meanings, too: `pwd=`, `"pass": `, `"auth": `, `key=`."""
    if is_harmless(value) or _NUMBER.fullmatch(value) or _PATH.fullmatch(value) or name.isupper():
        return False
    if name.lower() == b"pwd":
        return b"=" in sep
    is_option = name == b"pass" and bool(_PASS_OPTION.search(before))
    return is_option or (before.endswith((b'"', b"'")) and bool(_BASE64.fullmatch(value) or name == b"pass"))
