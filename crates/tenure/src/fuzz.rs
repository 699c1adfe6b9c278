//! Values from outside, by the million: accepted exactly as their documentation says.

use std::str::FromStr;

use tenure_core::{
    Label, LimitError, Metadata, Namespace, Note, Occurrence, Payload, Plan, ResourceName, Tickets,
};
use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence};

use crate::fence::Fence;

const NAMES: &[&str] = &[
    "nightly-report",
    "naïve job/7 {a}",
    "tenure",
    "pg_catalog",
    "a-z_09",
    "host-4121-1f2e3d4c",
    "*/15 * * * * Europe/Berlin",
    "{\"zone\":\"eu-1\",\"weight\":3}",
    "日本語の名前",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
];

/// Exactly what fits is accepted, and what is accepted is unchanged.
fn checked<T: ToString>(text: &str, outcome: &Result<T, LimitError>, fits: bool) {
    assert_eq!(outcome.is_ok(), fits, "{text:?}");
    match outcome {
        Ok(accepted) => assert_eq!(accepted.to_string(), text),
        Err(error) => is_a_sentence(&error.to_string()),
    }
}

#[test]
fn names() {
    let make = |make: &mut Maker| (make.text(NAMES), make.number());
    fuzz("names", make, |(text, number)| {
        let count = text.len();
        let plain = text.chars().all(|c| !matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}'));
        let narrow = text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
        let name = ResourceName::new(text);
        checked(text, &name, count > 0 && count <= 200 && plain);
        checked(text, &Label::new(text), count > 0 && count <= 100 && plain);
        checked(text, &Plan::new(text), count > 0 && count <= 200 && plain);
        checked(text, &Namespace::new(text), count > 0 && count <= 40 && narrow && !text.starts_with("pg_"));
        checked(text, &Metadata::new(text), count <= 4096);

        assert_eq!(Payload::new(text.as_bytes()).is_ok(), count <= 4096);
        let note = Note::of(text);
        assert!(note.as_str().len() <= 200 && !note.as_str().chars().any(char::is_control), "{note}");
        assert_eq!(Note::of(note.as_str()), note);
        if plain && count <= 200 {
            assert_eq!(note.as_str(), text);
        }
        let small = u32::try_from(*number).unwrap_or(u32::MAX);
        assert_eq!(
            Tickets::new(small).map(Tickets::count).ok(),
            (1..=1_000).contains(&small).then_some(small)
        );
        let occurrence = Occurrence::new(*number);
        assert_eq!(
            occurrence.as_ref().is_ok_and(|known| known.as_millis() == *number),
            *number <= 7_258_118_400_000
        );
        occurrence.err().iter().for_each(|error| is_a_sentence(&error.to_string()));
        Verdict::of(&name)
    });
}

const FENCES: &[&str] = &[
    "1763228625123500 0 nightly-report",
    "9007199254740991 999 a%20b%25c",
    "1 2 na%C3%AFve%20job",
    "7 3 !\"#$&'()*+,-./:;<=>?@[]^_`{|}~",
    "42 1 %41",
];

/// What the documentation says, in other words: digits, a blank, digits, a blank, visible ASCII with `%` and two digits.
fn fence_by_hand(text: &str) -> Option<(u64, u32, String)> {
    let (token, rest) = text.split_once(' ')?;
    let (ticket, name) = rest.split_once(' ')?;
    let is_decimal = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal(token) || !is_decimal(ticket) {
        return None;
    }
    let (token, ticket) = (token.parse().ok()?, ticket.parse().ok()?);
    let mut bytes = Vec::new();
    let mut signs = name.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '%' => {
                let (high, low) = (signs.next()?.to_digit(16)?, signs.next()?.to_digit(16)?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            '!'..='~' => bytes.push(u8::try_from(sign).ok()?),
            _ => return None,
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    let is_name = (1..=200).contains(&name.len()) && !name.chars().any(char::is_control);
    (is_name && ticket < 1_000 && (1..1 << 53).contains(&token)).then_some((token, ticket, name))
}

#[test]
fn fences() {
    let make = |make: &mut Maker| {
        if make.is_one_of(4) {
            return format!(
                "{} {} {}",
                make.number(),
                make.number() % 20_000,
                make.text(&["a", "a%20b", "%7E"])
            );
        }
        make.text(FENCES)
    };
    fuzz("fences", make, |text| {
        let parsed = Fence::from_str(text);
        let told =
            parsed.as_ref().ok().map(|fence| (fence.token(), fence.ticket(), fence.resource().to_string()));
        assert_eq!(told, fence_by_hand(text));
        match &parsed {
            Ok(fence) => {
                let sent = fence.to_string();
                assert_eq!(sent.parse().as_ref(), Ok(fence), "{sent:?}");
                #[cfg(feature = "tower")]
                assert_eq!(http::HeaderValue::from(fence).to_str().expect("plain text"), sent);
            }
            Err(error) => is_a_sentence(&error.to_string()),
        }
        Verdict::of(&parsed)
    });
}
