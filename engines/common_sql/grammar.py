"""The parser of queries: what it does not know is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.engines.common_sql.functions import FUNCTIONS
from streamfactory.engines.common_sql.nodes import (
    Call,
    Case,
    Cast,
    Item,
    Literal,
    Name,
    Node,
    Operation,
    Query,
)
from streamfactory.engines.common_sql.tokens import REMEDY, Token, refused, tokens
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

_KEYWORDS: Final = frozenset(
    """
    select from where as and or not is null true false distinct between in like case
    when then else end cast try_cast except having group order limit join on union
    intersect window lateral with rlike regexp div exists all any some using values
    cross inner left right full natural anti semi cluster sort distribute offset
    qualify pivot unpivot tablesample interval
    """.split()  # noqa: SIM905 - a list of words is read as one
)
"""Words that are no names unless they are quoted."""
_NOT_NAMES: Final = _KEYWORDS - {"left", "right"}
_COMPARISONS: Final = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"})
_DEEPEST: Final = 30
"""Levels of an expression. DataFusion's form of each has several brackets."""


@final
@dataclass(slots=True)
class Parser:
    """Parses one text."""

    sql: str
    _tokens: list[Token] = field(init=False)
    _at: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        self._tokens = tokens(self.sql)

    def query(self) -> Query:
        """Parse a SELECT.

        Raises:
            MisuseError: misuse; it is not one of the common part.
        """
        self._expect("select")
        if self._is("distinct"):
            msg = "DISTINCT needs more than a row"
            raise self._unexpected(msg)
        items = [self._item()]
        while self._accept(","):
            items.append(self._item())
        line = self._expect("from").line
        table, alias, where = self._name("the id of a step or source"), None, None
        if self._accept("as") or self._is_name():
            alias = self._name("a name")
        if self._accept("where"):
            where = self._expression()
        self._end()
        return Query(tuple(items), table, alias, where, line)

    def condition(self) -> Node:
        """Parse an expression alone.

        Raises:
            MisuseError: misuse; it is not one of the common part.
        """
        found = self._expression()
        self._end()
        return found

    # --- the table and its columns ------------------------------------------------

    def _item(self) -> Item:
        line = self._now.line
        if self._accept("*"):
            without = list[str]()
            if self._accept("except"):
                self._expect("(")
                without = [self._name("a column")]
                while self._accept(","):
                    without.append(self._name("a column"))
                self._expect(")")
            return Item(line, None, without=tuple(without))
        value = self._expression()
        name = None
        if self._accept("as") or self._is_name():
            name = self._name("a name")
        if name is None and isinstance(value, Name):
            name = value.name
        if name is None:
            msg = "a computed column needs a name: ... as name"
            raise refused(msg, line)
        return Item(line, value, name)

    # --- expressions, by their precedence -------------------------------------------

    def _expression(self) -> Node:
        self._depth += 1
        self._check_nesting(self._depth)
        found = self._joined("or", self._and)
        self._depth -= 1
        return found

    def _and(self) -> Node:
        return self._joined("and", self._not)

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        """Parts between a word, side by side: many of them nest nothing."""
        line = self._now.line
        found = [part()]
        while self._accept(word):
            found.append(part())
        return found[0] if len(found) == 1 else Operation(line, word, tuple(found))

    def _not(self) -> Node:
        nots = list[int]()
        while self._is("not"):
            nots.append(self._next().line)
            self._check_nesting(len(nots))
        found = self._comparison()
        for line in reversed(nots):
            found = Operation(line, "not", (found,))
        return found

    def _comparison(self) -> Node:
        left = self._sum()
        now = self._now
        if now.kind == "sign" and now.text in _COMPARISONS:
            self._next()
            found: Node = Operation(now.line, now.text, (left, self._sum()))
            if self._now.kind == "sign" and self._now.text in _COMPARISONS:
                msg = "a comparison of a comparison needs brackets"
                raise self._unexpected(msg)
            return found
        if self._accept("is"):
            return self._is_what(left, now.line)
        negated = self._accept("not")
        found = self._matched(left, now.line)
        return Operation(now.line, "not", (found,)) if negated else found

    def _is_what(self, left: Node, line: int) -> Node:
        negated = self._accept("not")
        if self._accept("distinct"):
            self._expect("from")
            same = Operation(line, "<=>", (left, self._sum()))
            return same if negated else Operation(line, "not", (same,))
        for word in ("null", "true", "false"):
            if self._accept(word):
                found = Operation(line, f"is {word}", (left,))
                return Operation(line, "not", (found,)) if negated else found
        raise self._unexpected()

    def _matched(self, left: Node, line: int) -> Node:
        """``between``, ``in``, ``like``, ``rlike``, or nothing of them."""
        if self._accept("between"):
            low = self._sum()
            self._expect("and")
            least = Operation(line, ">=", (left, low))
            most = Operation(line, "<=", (left, self._sum()))
            return Operation(line, "and", (least, most))
        if self._accept("in"):
            self._expect("(")
            found = [left, self._sum()]
            while self._accept(","):
                found.append(self._sum())
            self._expect(")")
            return Operation(line, "in", tuple(found))
        if self._accept("like"):
            return Operation(line, "like", (left, self._sum()))
        if self._accept("rlike") or self._accept("regexp"):
            return Call(line, "regexp_like", (left, self._sum()))
        if self._tokens[self._at - 1].text.lower() == "not":
            raise self._unexpected()
        return left

    def _sum(self) -> Node:
        found, count = self._product(), 0
        while self._now.kind == "sign" and self._now.text in ("+", "-", "||"):
            sign = self._next()
            found = Operation(sign.line, sign.text, (found, self._product()))
            count += 1
            self._check_nesting(count)
        return found

    def _product(self) -> Node:
        found, count = self._unary(), 0
        while self._now.kind == "sign" and self._now.text in ("*", "/", "%"):
            sign = self._next()
            found = Operation(sign.line, sign.text, (found, self._unary()))
            count += 1
            self._check_nesting(count)
        return found

    def _unary(self) -> Node:
        if not self._is("-"):
            return self._primary()
        line = self._next().line
        if self._now.kind == "number":
            found = self._number(self._next())
            return Literal(line, found.kind, f"-{found.text}")
        if self._is("-"):
            msg = "two signs need brackets"
            raise self._unexpected(msg)
        return Operation(line, "negative", (self._primary(),))

    def _primary(self) -> Node:
        now = self._now
        if now.kind == "number":
            return self._number(self._next())
        if now.kind == "text":
            return Literal(now.line, "text", self._next().text)
        if self._accept("("):
            if self._is("select"):
                msg = "a subquery needs more than a row"
                raise self._unexpected(msg)
            found = self._expression()
            self._expect(")")
            return found
        for word in ("true", "false", "null"):
            if self._accept(word):
                return Literal(now.line, "null" if word == "null" else "bool", word)
        if self._is("case"):
            return self._case()
        if self._is("cast") or self._is("try_cast"):
            return self._cast()
        return self._named()

    def _named(self) -> Node:
        """A column, a function or a literal of a type."""
        first = self._now
        after = self._tokens[self._at + 1] if first.kind != "end" else first
        if first.kind == "word" and after.kind == "text":
            kind = first.text.lower()
            if kind not in ("date", "timestamp"):
                msg = f"{first.text} before a text"
                raise self._unexpected(msg)
            self._next()
            return Literal(first.line, kind, self._next().text)
        name = self._name("a value")
        if first.kind == "word" and self._accept("("):
            if name.lower() not in FUNCTIONS:
                near = nearest(name.lower(), FUNCTIONS)
                msg = f"the function {name} is not in the common part"
                hint = REMEDY if near is None else f"did you mean {near}?"
                raise refused(msg, first.line, hint)
            arguments = list[Node]()
            if not self._accept(")"):
                arguments.append(self._expression())
                while self._accept(","):
                    arguments.append(self._expression())
                self._expect(")")
            if self._now.text.lower() in ("over", "filter", "within"):
                msg = "a window function needs more than a row"
                raise self._unexpected(msg)
            return Call(first.line, name.lower(), tuple(arguments))
        if self._accept("."):
            return Name(first.line, self._name("a column"), name)
        return Name(first.line, name)

    def _case(self) -> Node:
        line = self._next().line
        subject = None if self._is("when") else self._expression()
        branches = list[tuple[Node, Node]]()
        while self._accept("when"):
            when = self._expression()
            if subject is not None:
                when = Operation(when.line, "=", (subject, when))
            self._expect("then")
            branches.append((when, self._expression()))
        if not branches:
            raise self._unexpected()
        otherwise = self._expression() if self._accept("else") else None
        self._expect("end")
        return Case(line, tuple(branches), otherwise)

    def _cast(self) -> Node:
        first = self._next()
        self._expect("(")
        value = self._expression()
        self._expect("as")
        kind = self._next()
        if kind.kind != "word" or not self._is(")"):
            msg = "a cast to a type that is not supported"
            raise refused(msg, kind.line)
        self._next()
        safe = first.text.lower() == "try_cast"
        return Cast(first.line, value, kind.text.lower(), safe)

    def _number(self, token: Token) -> Literal:
        text = token.text
        if text.isdecimal():
            return Literal(token.line, "int", text)
        if text[:-1].isdecimal() and text[-1] in "lL":
            return Literal(token.line, "bigint", text[:-1])
        digits = text.rstrip("dD")
        if len(text) - len(digits) > 1 or digits[-1:].isalpha():
            msg = f"the number {text} is not supported"
            raise refused(msg, token.line)
        if digits != text or "e" in digits.lower():
            return Literal(token.line, "double", digits)
        return Literal(token.line, "decimal", digits)

    def _check_nesting(self, levels: int) -> None:
        if levels > _DEEPEST:
            msg = f"it is nested deeper than {_DEEPEST} levels"
            raise self._unexpected(msg)

    # --- tokens -------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._now
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _is(self, text: str) -> bool:
        now = self._now
        return now.kind in ("word", "sign") and now.text.lower() == text

    def _accept(self, text: str) -> bool:
        found = self._is(text)
        if found:
            self._next()
        return found

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            msg = f"{self._now.shown}, where {text!r} is expected"
            raise self._unexpected(msg)
        return self._next()

    def _is_name(self) -> bool:
        now = self._now
        known = now.kind == "word" and now.text.lower() not in _KEYWORDS
        return known or now.kind == "quoted"

    def _name(self, what: str) -> str:
        now = self._now
        called = self._tokens[min(self._at + 1, len(self._tokens) - 1)].text == "("
        word = now.kind == "word" and (
            now.text.lower() not in (_NOT_NAMES if called else _KEYWORDS)
        )
        if not word and now.kind != "quoted":
            msg = f"{now.shown}, where {what} is expected"
            raise self._unexpected(msg)
        return self._next().text

    def _end(self) -> None:
        if self._now.kind != "end":
            raise self._unexpected()

    def _unexpected(self, what: str | None = None) -> Exception:
        what = what or f"{self._now.shown} is not supported there"
        return refused(what, self._now.line)
