//! What a server says, as bytes: where an answer ends, and what it is. In RESP2, which every server speaks.
//!
//! The library's own parser takes as long as a small script does: it is made for all that a server may ever say, and
//! with every hand-over its code comes from memory. Refusals, which are rare and of many kinds, are left to it.

use redis::Value;

use super::trouble::{Outcome, Trouble};

/// What a line may have before its end: no number needs as much, and no refusal has more to say.
const LONGEST_LINE: usize = 64 << 10;
/// None of our answers has a thousandth of it in one piece.
const LARGEST: usize = 64 << 20;
/// Nor so many parts in one list.
const MOST_PARTS: usize = 1 << 20;
/// None of our answers has half as many lists within lists.
const DEEPEST: usize = 16;

/// How far an answer has come; goes on where it was when more has.
#[derive(Debug)]
pub(super) struct Coming {
    at: usize,
    /// How many values are still to come: a list is as many more as it has parts.
    values: u64,
}

impl Default for Coming {
    fn default() -> Self {
        Self { at: 0, values: 1 }
    }
}

impl Coming {
    /// How many bytes the first answer takes, if it is there as a whole. `bytes` are those of last time, and more.
    pub(super) fn whole(&mut self, bytes: &[u8]) -> Outcome<Option<usize>> {
        while self.values > 0 {
            let Some((line, next)) = line(bytes, self.at)? else { return Ok(None) };
            self.at = match line.split_first() {
                Some((b'$', length)) => match count(length)? {
                    Some(length) if bytes.len() < next + length + 2 => return Ok(None),
                    Some(length) => next + length + 2,
                    None => next,
                },
                Some((b'*', length)) => {
                    self.values += parts(length)?.unwrap_or(0) as u64;
                    next
                }
                _ => next,
            };
            self.values -= 1;
        }
        Ok(Some(std::mem::take(self).at))
    }
}

/// The value that these bytes are, all of them.
pub(super) fn value(bytes: &[u8]) -> Outcome<Value> {
    let (value, end) = part(bytes, 0, DEEPEST)?;
    if end == bytes.len() { Ok(value) } else { Err(odd("more than one value")) }
}

/// The value that begins at `from`, and where the next one does.
fn part(bytes: &[u8], from: usize, depth: usize) -> Outcome<(Value, usize)> {
    let cut = || odd("it ends too early");
    let (line, next) = line(bytes, from)?.ok_or_else(cut)?;
    let (kind, rest) = line.split_first().ok_or_else(|| odd("an empty line"))?;
    match kind {
        b'+' if rest == b"OK" => Ok((Value::Okay, next)),
        b'+' => Ok((Value::SimpleString(text(rest)?.to_owned()), next)),
        b':' => Ok((Value::Int(number(rest)?), next)),
        b'-' => Ok((redis::parse_redis_value(&bytes[from..next])?, next)),
        b'$' => {
            let Some(length) = count(rest)? else { return Ok((Value::Nil, next)) };
            let end = next + length;
            match (bytes.get(next..end), bytes.get(end..end + 2)) {
                (Some(data), Some(b"\r\n")) => Ok((Value::BulkString(data.to_vec()), end + 2)),
                (Some(_), Some(_)) => Err(odd("a text is longer than it says")),
                _ => Err(cut()),
            }
        }
        b'*' => {
            let Some(length) = parts(rest)? else { return Ok((Value::Nil, next)) };
            let depth = depth.checked_sub(1).ok_or_else(|| odd("too many lists within lists"))?;
            let (mut values, mut next) = (Vec::new(), next);
            for _ in 0..length {
                let (value, end) = part(bytes, next, depth)?;
                values.push(value);
                next = end;
            }
            Ok((Value::Array(values), next))
        }
        _ => Err(odd("a value of another kind")),
    }
}

/// The line that begins at `from` without its end, and where the next one begins; nothing if it has no end yet.
fn line(bytes: &[u8], from: usize) -> Outcome<Option<(&[u8], usize)>> {
    let rest = bytes.get(from..).unwrap_or_default();
    match rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && rest[end - 1] == b'\r' => Ok(Some((&rest[..end - 1], from + end + 1))),
        Some(_) => Err(odd("a line without its end")),
        None if rest.len() >= LONGEST_LINE => Err(odd("a line without end")),
        None => Ok(None),
    }
}

/// How many bytes follow; nothing for what is not there.
fn count(digits: &[u8]) -> Outcome<Option<usize>> {
    up_to(LARGEST, digits)
}

/// How many parts follow; nothing for what is not there.
fn parts(digits: &[u8]) -> Outcome<Option<usize>> {
    up_to(MOST_PARTS, digits)
}

fn up_to(most: usize, digits: &[u8]) -> Outcome<Option<usize>> {
    match number(digits)? {
        -1 => Ok(None),
        count => match usize::try_from(count) {
            Ok(count) if count <= most => Ok(Some(count)),
            _ => Err(odd("a length that cannot be")),
        },
    }
}

fn number(digits: &[u8]) -> Outcome<i64> {
    text(digits)?.parse().map_err(|_| odd("a number that is none"))
}

fn text(bytes: &[u8]) -> Outcome<&str> {
    std::str::from_utf8(bytes).map_err(|_| odd("a line that is no text"))
}

fn odd(how: &str) -> Trouble {
    Trouble::Odd(how.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_kind_of_answer_is_understood() {
        let kinds: [(&str, Value); 8] = [
            ("+OK\r\n", Value::Okay),
            ("+PONG\r\n", Value::SimpleString("PONG".to_owned())),
            (":-7\r\n", Value::Int(-7)),
            ("$-1\r\n", Value::Nil),
            ("$0\r\n\r\n", text("")),
            ("$4\r\na\r\nb\r\n", text("a\r\nb")),
            ("*0\r\n", Value::Array(Vec::new())),
            (
                "*2\r\n*1\r\n$1\r\nx\r\n:5\r\n",
                Value::Array(vec![Value::Array(vec![text("x")]), Value::Int(5)]),
            ),
        ];
        for (bytes, means) in kinds {
            assert_eq!(Coming::default().whole(bytes.as_bytes()).expect("it is sound"), Some(bytes.len()));
            assert_eq!(value(bytes.as_bytes()).expect("it is sound"), means, "{bytes:?}");
        }
        let refused = value(b"-NOSCRIPT No matching script\r\n").expect("it is sound").extract_error();
        assert!(Trouble::from(refused.expect_err("it is a refusal")).is_unknown_script());
    }

    #[test]
    fn an_answer_that_comes_in_pieces_is_whole_with_the_last_one() {
        let bytes = b"*3\r\n$5\r\nhello\r\n*2\r\n:1\r\n$-1\r\n+OK\r\n:9\r\n";
        let end = bytes.len() - 4;
        let mut coming = Coming::default();
        for some in 0..end {
            assert_eq!(coming.whole(&bytes[..some]).expect("it is sound"), None, "{some}");
        }
        assert_eq!(coming.whole(bytes).expect("it is sound"), Some(end));

        assert_eq!(coming.whole(&bytes[end..]).expect("it is sound"), Some(4), "the next one begins anew");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let deep = "*1\r\n".repeat(40) + ":1\r\n";
        let endless = "+".repeat(LONGEST_LINE + 1);
        let refused = [
            "\r\n",
            "?\r\n",
            "$x\r\n",
            "$-2\r\n",
            ":1\n",
            "$99999999999\r\n",
            "*9999999\r\n",
            "$1\r\nabc\r\n",
            &deep,
            &endless,
        ];
        for bytes in refused {
            let whole = Coming::default().whole(bytes.as_bytes());
            let told = whole.and_then(|end| value(&bytes.as_bytes()[..end.unwrap_or(0)]));
            assert!(matches!(told, Err(Trouble::Odd(_))), "{told:?}");
        }
    }
}
