//! Tokens of JSON in the text of a message, which is UTF-8.

/// Digits of an integer that fit into 64 bits whatever they are.
const DIGITS: usize = 18;
/// Digits of an integer that is surely a double.
const EXACT: usize = 15;
/// Powers of ten, by the digits of a word.
const TENS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// Powers of ten that are doubles.
const POWERS: [f64; EXACT + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Whether a byte is a quote, a backslash or a control character.
#[inline]
fn is_special(byte: &u8) -> bool {
    (*byte == b'"') | (*byte == b'\\') | (*byte < b' ')
}

/// The high bit of each byte that is special.
///
/// Bytes above the first of them may have theirs, too, by a borrow.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (equal(b'"') | equal(b'\\') | below(word, b' ')) & (ONES << 7)
}

/// The digits with which eight bytes begin, as a number, and how many they are.
#[inline]
fn leading_digits(word: u64) -> (u64, usize) {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0xf0;
    const ZEROS: u64 = ONES * 0x30;
    // '0' to '9' have the high half 3, and keep it when 6 is added. A carry changes only
    // bytes above one that is no digit. The first byte of a message is the lowest.
    let others = ((word & HIGH) ^ ZEROS) | ((word.wrapping_add(ONES * 6) & HIGH) ^ ZEROS);
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros before them. Then two digits are added up, four, and eight.
    let digits = (word & (ONES * 0x0f)) << (64 - 8 * count);
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let eight = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (eight, count)
}

/// A name with quotes and colon, as most messages have it.
///
/// None for a name that has to be escaped in JSON.
pub struct Key {
    text: Vec<u8>,
    /// The first eight bytes, or what there is, and which bits of eight bytes these are.
    head: u64,
    mask: u64,
}

impl Key {
    pub fn new(name: &str) -> Option<Self> {
        if name.as_bytes().iter().any(is_special) {
            return None;
        }
        let text = format!("\"{name}\":").into_bytes();
        let part = |byte: fn(u8) -> u8| {
            let mut word = [0; 8];
            word.iter_mut().zip(&text).for_each(|(place, &one)| *place = byte(one));
            u64::from_le_bytes(word)
        };
        let (head, mask) = (part(|byte| byte), part(|_| u8::MAX));
        Some(Self { text, head, mask })
    }
}

/// A string: bytes of the message, or those that were added to the scratch space if it
/// had escapes.
pub enum Text<'a> {
    Plain(&'a [u8]),
    Unescaped,
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

    #[inline]
    pub fn pass_space(&mut self) {
        // Most messages have no white space, and its bytes are the lowest.
        if self.peek().is_some_and(|byte| byte <= b' ') {
            self.pass_some_space();
        }
    }

    #[cold]
    fn pass_some_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    pub fn ended(&mut self) -> bool {
        self.pass_space();
        self.at == self.text.len()
    }

    #[inline]
    pub fn is(&mut self, byte: u8) -> bool {
        self.pass_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    pub fn byte(&mut self, byte: u8) -> Option<()> {
        self.is(byte).then_some(())
    }

    #[inline]
    pub fn literal(&mut self, word: &[u8]) -> bool {
        self.pass_space();
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Pass a key.
    #[inline]
    pub fn key(&mut self, key: Option<&Key>) -> bool {
        let Some(key) = key else { return false };
        let rest = &self.text[self.at..];
        let found = match rest.first_chunk() {
            Some(&word) if u64::from_le_bytes(word) & key.mask != key.head => false,
            Some(_) if key.text.len() <= size_of::<u64>() => true,
            _ => rest.starts_with(&key.text),
        };
        self.at += if found { key.text.len() } else { 0 };
        found
    }

    /// Pass digits; how many.
    fn digits(&mut self) -> usize {
        self.decimal(0).1
    }

    /// Pass digits; the number that they continue, modulo 2^64, and how many they are.
    #[inline]
    fn decimal(&mut self, mut number: u64) -> (u64, usize) {
        let begin = self.at;
        while let Some(&word) = self.text[self.at..].first_chunk() {
            let (digits, count) = leading_digits(u64::from_le_bytes(word));
            number = number.wrapping_mul(TENS[count]).wrapping_add(digits);
            self.at += count;
            if count < size_of::<u64>() {
                return (number, self.at - begin);
            }
        }
        for byte in &self.text[self.at..] {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        (number, self.at - begin)
    }

    /// Pass a sign and the digits of an integer: whether it has a sign, its number, and
    /// how many digits. No leading zeros.
    #[inline]
    fn whole(&mut self) -> Option<(bool, u64, usize)> {
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let zero = self.peek() == Some(b'0');
        let (number, count) = self.decimal(0);
        (count > 0 && (count == 1 || !zero)).then_some((negative, number, count))
    }

    #[inline]
    pub fn integer(&mut self) -> Option<i64> {
        self.pass_space();
        let (negative, number, count) = self.whole()?;
        if count > DIGITS || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        let number = number as i64;
        Some(if negative { -number } else { number })
    }

    /// A finite number. Not an integer of more digits than fit, nor a zero with a sign:
    /// whether that sign is kept depends on how it is written.
    #[inline]
    pub fn double(&mut self) -> Option<f64> {
        self.pass_space();
        let begin = self.at;
        let (negative, mut number, mut count) = self.whole()?;
        let mut places = 0;
        if self.peek() == Some(b'.') {
            self.at += 1;
            (number, places) = self.decimal(number);
            (places > 0).then_some(())?;
            count += places;
        }
        if count > EXACT || matches!(self.peek(), Some(b'e' | b'E')) {
            self.at = begin;
            return self.long_double();
        }
        // Both are doubles, and the quotient of two doubles is rounded once.
        let found = number as f64 / POWERS[places];
        (number != 0 || !negative).then_some(if negative { -found } else { found })
    }

    fn long_double(&mut self) -> Option<f64> {
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

    #[inline]
    pub fn string(&mut self, scratch: &mut Vec<u8>) -> Option<Text<'a>> {
        self.byte(b'"')?;
        let begin = self.at;
        self.pass_plain();
        if self.peek()? == b'"' {
            self.at += 1;
            return Some(Text::Plain(&self.text[begin..self.at - 1]));
        }
        self.escaped(begin, scratch)?;
        Some(Text::Unescaped)
    }

    /// Add a string that began before, and is plain up to here, to the scratch space.
    #[cold]
    fn escaped(&mut self, mut plain: usize, scratch: &mut Vec<u8>) -> Option<()> {
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
        Some(())
    }

    /// Pass what stands for itself in a string.
    #[inline]
    fn pass_plain(&mut self) {
        // Long texts: the compiler has one instruction for a test of all bytes.
        while let Some(block) = self.text[self.at..].first_chunk::<16>() {
            if block.iter().fold(false, |found, byte| found | is_special(byte)) {
                break;
            }
            self.at += block.len();
        }
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
        self.at += tail.iter().position(is_special).unwrap_or(tail.len());
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

    /// Pass a string.
    fn passed(&mut self, scratch: &mut Vec<u8>) -> Option<()> {
        scratch.clear();
        self.string(scratch).map(|_| ())
    }

    /// Pass any value, nested to a depth.
    pub fn skip(&mut self, scratch: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.pass_space();
        match self.peek()? {
            b'{' if depth > 0 => self.members(b'}', |at| {
                at.passed(scratch)?;
                at.byte(b':')?;
                at.skip(scratch, depth - 1)
            }),
            b'[' if depth > 0 => self.members(b']', |at| at.skip(scratch, depth - 1)),
            b'"' => self.passed(scratch),
            b't' | b'f' | b'n' => {
                (self.literal(b"true") || self.literal(b"false") || self.literal(b"null"))
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
