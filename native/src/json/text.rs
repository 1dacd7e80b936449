//! Tokens of JSON in the text of a message, which is UTF-8.

use std::ops::Range;

/// Digits of an integer that fit into 64 bits whatever they are.
const DIGITS: usize = 18;

/// The high bit of each byte that is a quote, a backslash or a control character.
///
/// Bytes above the first of them may have theirs, too, by a borrow.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (equal(b'"') | equal(b'\\') | below(word, b' ')) & (ONES << 7)
}

/// A string: bytes of the message, or of the scratch space if it had escapes.
pub enum Text {
    Plain(Range<usize>),
    Unescaped(Range<usize>),
}

impl Text {
    pub fn of<'a>(&self, message: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Plain(range) => &message[range.clone()],
            Self::Unescaped(range) => &scratch[range.clone()],
        }
    }
}

/// A position in a message. Every function passes white space first, and answers None,
/// or false, if something else follows.
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn pass_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    pub fn ended(&mut self) -> bool {
        self.pass_space();
        self.at == self.text.len()
    }

    pub fn is(&mut self, byte: u8) -> bool {
        self.pass_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub fn byte(&mut self, byte: u8) -> Option<()> {
        self.is(byte).then_some(())
    }

    pub fn literal(&mut self, word: &str) -> bool {
        self.pass_space();
        let found = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Pass digits; how many.
    fn digits(&mut self) -> usize {
        let begin = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - begin
    }

    /// Pass a sign and the digits of an integer; how many digits. No leading zeros.
    fn whole(&mut self) -> Option<usize> {
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let count = self.digits();
        (count > 0 && (count == 1 || !zero)).then_some(count)
    }

    pub fn integer(&mut self) -> Option<i64> {
        self.pass_space();
        let begin = self.at;
        if self.whole()? > DIGITS || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        let digits = &self.text[begin..self.at];
        let negative = digits[0] == b'-';
        let number = digits[usize::from(negative)..]
            .iter()
            .fold(0, |sum: i64, &digit| sum.wrapping_mul(10) + i64::from(digit - b'0'));
        Some(if negative { -number } else { number })
    }

    /// A finite number. Not an integer of more digits than fit, nor a zero with a sign:
    /// whether that sign is kept depends on how it is written.
    pub fn double(&mut self) -> Option<f64> {
        let token = self.number()?;
        let found: f64 = str::from_utf8(token).ok()?.parse().ok()?;
        let wide =
            token.len() > DIGITS && token.iter().all(|byte| !matches!(byte, b'.' | b'e' | b'E'));
        let zero = found == 0.0 && token[0] == b'-';
        (found.is_finite() && !wide && !zero).then_some(found)
    }

    fn number(&mut self) -> Option<&'a [u8]> {
        self.pass_space();
        let begin = self.at;
        self.whole()?;
        if self.peek() == Some(b'.') {
            self.at += 1;
            (self.digits() > 0).then_some(())?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            (self.digits() > 0).then_some(())?;
        }
        Some(&self.text[begin..self.at])
    }

    pub fn string(&mut self, scratch: &mut Vec<u8>) -> Option<Text> {
        self.byte(b'"')?;
        let begin = self.at;
        self.pass_plain();
        if self.peek()? == b'"' {
            self.at += 1;
            return Some(Text::Plain(begin..self.at - 1));
        }
        let first = scratch.len();
        let mut plain = begin;
        loop {
            scratch.extend_from_slice(&self.text[plain..self.at]);
            match self.peek()? {
                b'"' => break,
                b'\\' => self.unescape(scratch)?,
                _ => return None, // a control character
            }
            plain = self.at;
            self.pass_plain();
        }
        self.at += 1;
        Some(Text::Unescaped(first..scratch.len()))
    }

    /// Pass what stands for itself in a string.
    fn pass_plain(&mut self) {
        let rest = &self.text[self.at..];
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            let special = special_bytes(u64::from_le_bytes(*word));
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..b' ');
        self.at += tail.iter().position(special).unwrap_or(tail.len());
    }

    fn unescape(&mut self, scratch: &mut Vec<u8>) -> Option<()> {
        let code = *self.text.get(self.at + 1)?;
        self.at += 2;
        let byte = match code {
            b'"' | b'\\' | b'/' => code,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let found = self.code_point()?;
                scratch.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                return Some(());
            }
            _ => return None,
        };
        scratch.push(byte);
        Some(())
    }

    /// A character of one unit of UTF-16, or of two.
    fn code_point(&mut self) -> Option<char> {
        let high = self.unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high); // None: a low surrogate alone
        }
        self.text[self.at..].starts_with(b"\\u").then_some(())?;
        self.at += 2;
        let low = self.unit()?;
        (0xdc00..0xe000).contains(&low).then_some(())?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | char::from(digit).to_digit(16)?))
    }

    /// Pass any value, nested to a depth.
    pub fn skip(&mut self, scratch: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.pass_space();
        match self.peek()? {
            b'{' if depth > 0 => self.members(b'}', |at| {
                at.string(scratch)?;
                at.byte(b':')?;
                at.skip(scratch, depth - 1)
            }),
            b'[' if depth > 0 => self.members(b']', |at| at.skip(scratch, depth - 1)),
            b'"' => self.string(scratch).map(|_| ()),
            b't' | b'f' | b'n' => {
                (self.literal("true") || self.literal("false") || self.literal("null"))
                    .then_some(())
            }
            _ => self.number().map(|_| ()),
        }
    }

    /// Pass members between brackets, with commas.
    fn members(&mut self, end: u8, mut member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.at += 1;
        if self.is(end) {
            return Some(());
        }
        loop {
            member(self)?;
            if !self.is(b',') {
                return self.byte(end);
            }
        }
    }
}
