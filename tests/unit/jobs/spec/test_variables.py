"""``${NAME}``: values of the environment, and secrets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import SecretStr

from jobs.spec import Problem, dump_spec, parse_spec, spec_digest, to_document
from jobs.spec.fields import revealed, secret_option
from jobs.spec.sources import JdbcSource, KafkaSource
from jobs.spec.variables import expand, literal
from odi_audit.errors import ConfigError
from odi_audit.redact import redact_text

Told = Callable[..., dict[str, Problem]]
ENV = {"HOST": "broker", "PW": "s3cret-value", "EMPTY": ""}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${HOST}:9092", "broker:9092"),
        ("${NONE:-a}-${HOST}", "a-broker"),
        ("${EMPTY:-d}", "d"),
        ("${NONE:-}", ""),
        ("$${HOST}", "${HOST}"),
        ("$HOST and $5", "$HOST and $5"),
    ],
)
def test_a_variable_becomes_its_value(written: str, value: str) -> None:
    assert expand(written, ENV).text == value
    assert not expand(written, ENV).problems


@pytest.mark.parametrize("text", ["${", "${HOST", "${1A}", "${A-b}", "${}"])
def test_a_half_written_variable_is_told(text: str) -> None:
    assert expand(text, ENV).problems


@pytest.mark.parametrize("text", ["plain", "${HOST}", "$${X}", "${"])
def test_a_literal_text_expands_to_itself(text: str) -> None:
    assert expand(literal(text), ENV).text == text


def test_every_unset_variable_is_named_with_its_line(told: Told, good: str) -> None:
    found = told(good.replace("broker:9092", "${A}").replace("sales.orders", "sales.${B}"))
    assert found["source.servers"].mark.line == 5
    assert "variable A is not set" in found["source.servers"].message
    assert "variable B is not set" in found["target.table"].message
    assert found["target.table"].mark.line == 16


def test_a_value_is_never_read_as_yaml(good: str) -> None:
    text = good + "owner: ${OWNER}\n"
    owner = "x\nengine: spark # {a: [b"
    spec = parse_spec(text, {"OWNER": owner})
    assert (spec.owner, spec.engine) == (owner, "auto")


def test_numbers_and_durations_may_come_from_variables(good: str) -> None:
    text = good.replace("every: 5m", "every: ${E}\n  rows: ${R}\n  cut_at_transactions: ${C}")
    spec = parse_spec(text, {"E": "30s", "R": "77", "C": "false"})
    assert (spec.batch.every.seconds, spec.batch.rows, spec.batch.cut_at_transactions) == (
        30, 77, False,
    )  # fmt: skip


def with_options(good: str, line: str) -> str:
    return good.replace("  topics:", f"  options:\n    {line}\n  topics:")


@pytest.mark.parametrize(
    "key", ["sasl.password", "sasl.jaas.config", "ssl.key.password", "api_key", "sasl.oauth.token"]
)
def test_a_secret_in_the_file_is_an_error_that_does_not_repeat_it(
    told: Told, good: str, key: str
) -> None:
    found = told(with_options(good, f"{key}: hunter22"))
    problem = found[f"source.options.{key}"]
    assert "write ${NAME}" in problem.message
    assert problem.mark.line == 7
    assert "hunter22" not in str(found)


def test_a_secret_from_a_variable_is_masked_everywhere_and_given_to_the_client(good: str) -> None:
    text = with_options(good, 'sasl.jaas.config: login password="${PW}";\n    retries: 3')
    spec = parse_spec(text, ENV)
    assert isinstance(spec.source, KafkaSource)
    assert isinstance(spec.source.options["sasl.jaas.config"], SecretStr)
    assert revealed(spec.source.options) == {
        "sasl.jaas.config": 'login password="s3cret-value";',
        "retries": "3",
    }
    for shown in (repr(spec), str(spec), dump_spec(spec), str(to_document(spec))):
        assert "s3cret-value" not in shown
    assert redact_text(f'error: login password="{ENV["PW"]}";').count("s3cret-value") == 0
    assert parse_spec(dump_spec(spec), ENV) == spec


def test_names_of_options_say_which_are_secrets() -> None:
    assert secret_option("sasl.jaas.config")
    assert secret_option("ssl.keystore.password")
    assert not secret_option("key.deserializer.encoding")
    assert not secret_option("security.protocol")


JDBC = """\
version: 1
job: sales/customers
source:
  type: jdbc
  url: {url}
  user: reader
  password: {password}
  table: customers
  watermark: {{column: updated_at}}
target: {{table: sales.customers}}
"""


def test_a_password_of_a_database_comes_from_a_variable(told: Told) -> None:
    text = JDBC.format(url="jdbc:postgresql://h/d", password="${PW}")
    spec = parse_spec(text, ENV)
    assert isinstance(spec.source, JdbcSource)
    assert spec.source.password is not None
    assert spec.source.password.get_secret_value() == ENV["PW"]
    found = told(JDBC.format(url="jdbc:postgresql://h/d", password="hunter22"))
    assert found["source.password"].mark.line == 7
    assert "hunter22" not in str(found)


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://u:hunter22@h/d", "jdbc:postgresql://h/d?user=u&password=hunter22",
     "jdbc:sqlserver://h;password=hunter22"],
)  # fmt: skip
def test_an_address_with_a_password_is_refused_without_repeating_it(told: Told, url: str) -> None:
    found = told(JDBC.format(url=f'"{url}"', password="${PW}"), ENV)
    assert "holds a password" in found["source.url"].message
    assert "hunter22" not in str(found)
    found = told(JDBC.format(url="${URL}", password="${PW}"), {**ENV, "URL": url})
    assert "hunter22" not in str(found)


def test_a_wrong_value_from_a_variable_tells_the_variable_and_hides_what_may_be_a_secret(
    told: Told, good: str
) -> None:
    found = told(good.replace("every: 5m", "every: ${EVERY}"), {"EVERY": "soon"})
    assert "'soon'" in found["batch.every"].message
    assert "${EVERY}" in found["batch.every"].message
    found = told(good.replace("every: 5m", "every: ${MY_TOKEN}"), {"MY_TOKEN": "abcdefgh"})
    assert "abcdefgh" not in str(found)
    found = told(good.replace("mode: append", "mode: ${MY_TOKEN}"), {"MY_TOKEN": "abcdefgh"})
    assert "abcdefgh" not in str(found)


def test_the_digest_knows_everything_but_secrets(good: str) -> None:
    text = with_options(good, "sasl.password: ${PW}").replace("every: 5m", "every: ${E:-5m}")
    first = spec_digest(parse_spec(text, ENV))
    assert len(first) == 64
    assert spec_digest(parse_spec(text, {"PW": "another-one"})) == first
    assert spec_digest(parse_spec(text, {**ENV, "E": "6m"})) != first
    assert spec_digest(parse_spec("# a comment\n" + text, ENV)) == first
    assert spec_digest(parse_spec(text.replace("every: ${E:-5m}", "rows: 500000"), ENV)) == first
    assert spec_digest(parse_spec(text.replace("PW", "HOST"), ENV)) != first


def test_the_largest_offset_has_a_digest_and_a_larger_one_is_told(told: Told, good: str) -> None:
    text = good.replace(
        "  topics", "  start: {offsets: {orders: {0: 9223372036854775807}}}\n  topics"
    )
    spec = parse_spec(text, {})
    assert spec.source.start.offsets == {"orders": {0: 2**63 - 1}}  # type: ignore[union-attr]
    assert spec_digest(spec) != spec_digest(parse_spec(text.replace("5807", "5806"), {}))
    assert parse_spec(dump_spec(spec), {}) == spec
    assert list(told(text.replace("5807", "5808"))) == ["source.start.offsets.orders.0"]
    assert list(told(text.replace("{0:", "{-1:"))) == ["source.start.offsets.orders.-1"]


def test_half_characters_are_told_wherever_they_come_from(told: Told, good: str) -> None:
    assert list(told(good + 'owner: "\\ud800"\n')) == ["owner"]
    assert list(told(good + "owner: ${O}\n", {"O": "\udcff"})) == ["owner"]


def test_the_error_of_loading_holds_no_secret(good: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(with_options(good, "sasl.password: ${PW}") + "nope: 1\n", ENV)
    assert ENV["PW"] not in str(caught.value) + repr(caught.value.facts)
