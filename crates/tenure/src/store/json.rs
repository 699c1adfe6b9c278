//! JSON objects, written and read field by field, with no tree of values in between: records are large where many wait.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::Serialize;
use serde_json::value::RawValue;

/// The largest number that counts something: every language can hold it, and the next one.
pub(super) const LARGEST: u64 = (1 << 53) - 2;

/// Writes one object.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// The object with the fields that `write` puts into it.
    pub(super) fn object(write: impl FnOnce(&mut Self)) -> String {
        let mut writer = Self(Vec::with_capacity(256));
        writer.braces(write);
        String::from_utf8(writer.0).expect("JSON is text")
    }

    fn braces(&mut self, write: impl FnOnce(&mut Self)) {
        self.0.push(b'{');
        write(self);
        self.0.push(b'}');
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.0, value).expect("there is always room in memory");
    }

    fn name(&mut self, name: &str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.value(name);
        self.0.push(b':');
    }

    /// A number, a text, true or false.
    pub(super) fn put(&mut self, name: &str, value: impl Serialize) {
        self.name(name);
        self.value(&value);
    }

    /// A value that is JSON already.
    pub(super) fn raw(&mut self, name: &str, json: &str) {
        self.name(name);
        self.0.extend_from_slice(json.as_bytes());
    }

    pub(super) fn hex(&mut self, name: &str, number: u128) {
        self.put(name, format_args!("{number:032x}"));
    }

    /// An object within this one.
    pub(super) fn part(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.name(name);
        self.braces(write);
    }

    /// A list of objects.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) {
        self.name(name);
        self.0.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.0.push(b',');
            }
            self.braces(|object| write(object, item));
        }
        self.0.push(b']');
    }
}

/// What is wrong with an object.
pub(super) type Read<T> = Result<T, String>;

/// Takes the fields out of one object; what is left over at the end can be kept as it is.
pub(super) struct Reader<'a> {
    fields: Vec<(Name<'a>, &'a RawValue)>,
}

impl<'a> Reader<'a> {
    /// Of an object that is called `name` in errors.
    pub(super) fn of(json: &'a str, name: &str) -> Read<Self> {
        serde_json::from_str(json).map_err(|_| format!("`{name}` is not an object"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field.0 == name)
    }

    /// Of fields with the same name the last one counts.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let mut found = None;
        while let Some(index) = self.fields.iter().position(|(field, _)| field.0 == name) {
            found = Some(self.fields.remove(index).1.get());
        }
        found
    }

    fn value<T: Deserialize<'a>>(&mut self, name: &str, what: &str) -> Read<Option<T>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        serde_json::from_str(json).map(Some).map_err(|_| format!("`{name}` is not {what}"))
    }

    pub(super) fn number(&mut self, name: &str) -> Read<u64> {
        present(self.maybe_number(name)?, name)
    }

    pub(super) fn maybe_number(&mut self, name: &str) -> Read<Option<u64>> {
        match self.value(name, "a number")? {
            Some(number) if number > LARGEST => {
                Err(format!("`{name}` is {number}; the maximum is {LARGEST}"))
            }
            number => Ok(number),
        }
    }

    /// A number that was drawn at random: any that there is.
    pub(super) fn drawn(&mut self, name: &str) -> Read<u64> {
        present(self.maybe_drawn(name)?, name)
    }

    pub(super) fn maybe_drawn(&mut self, name: &str) -> Read<Option<u64>> {
        self.value(name, "a number")
    }

    pub(super) fn small(&mut self, name: &str) -> Read<u32> {
        u32::try_from(self.number(name)?).map_err(|_| format!("`{name}` is too large"))
    }

    /// A number that may be below zero.
    pub(super) fn maybe_signed(&mut self, name: &str) -> Read<Option<i32>> {
        self.value(name, "a number between -2147483648 and 2147483647")
    }

    pub(super) fn text(&mut self, name: &str) -> Read<String> {
        present(self.maybe_text(name)?, name)
    }

    pub(super) fn maybe_text(&mut self, name: &str) -> Read<Option<String>> {
        self.value(name, "text")
    }

    /// One of several names, each of which `of` knows.
    pub(super) fn known<T>(&mut self, name: &str, of: fn(&str) -> Option<T>) -> Read<T> {
        present(self.maybe_known(name, of)?, name)
    }

    pub(super) fn maybe_known<T>(&mut self, name: &str, of: fn(&str) -> Option<T>) -> Read<Option<T>> {
        let known =
            |text: String| of(&text).ok_or_else(|| format!("`{name}` is {text:?}, which is not known"));
        self.maybe_text(name)?.map(known).transpose()
    }

    /// Whatever it is, as it was written.
    pub(super) fn maybe_raw(&mut self, name: &str) -> Option<&'a str> {
        self.take(name)
    }

    pub(super) fn hex(&mut self, name: &str) -> Read<u128> {
        let text: &str = present(self.value(name, "a hexadecimal number")?, name)?;
        u128::from_str_radix(text, 16).map_err(|_| format!("`{name}` is not a hexadecimal number"))
    }

    /// False if it is not there.
    pub(super) fn flag(&mut self, name: &str) -> Read<bool> {
        Ok(self.value(name, "true or false")?.unwrap_or(false))
    }

    /// The objects of a list, each read by `read`; none if it is not there.
    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let items: Vec<&'a RawValue> = self.value(name, "a list")?.unwrap_or_default();
        items.into_iter().map(|item| read(&mut Self::of(item.get(), name)?)).collect()
    }

    /// An object within this one, read by `read`.
    pub(super) fn maybe_part<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<Option<T>> {
        self.take(name).map(|json| read(&mut Self::of(json, name)?)).transpose()
    }

    pub(super) fn part<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        present(self.maybe_part(name, read)?, name)
    }

    /// What nobody has taken, as it was written.
    pub(super) fn left_over<T: FromIterator<(String, Arc<str>)>>(&mut self) -> T {
        self.fields.drain(..).map(|(name, json)| (name.0.into_owned(), json.get().into())).collect()
    }
}

fn present<T>(value: Option<T>, name: &str) -> Read<T> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Reader<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Reader<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Reader { fields })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// The name of a field; copied only where it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text = Writer::object(|write| {
            write.put("number", 7);
            write.put("below", -3);
            write.put("text", "a \"b\"\n\u{1}\u{e9}");
            write.put("flag", true);
            write.hex("hex", u128::MAX);
            write.part("empty", |_| ());
            write.list("list", [1, 2], |write, number| write.put("n", number));
            write.list("none", [(); 0], |_, ()| ());
            write.raw("raw", "[1.50, null]");
        });
        assert_eq!(
            text,
            r#"{"number":7,"below":-3,"text":"a \"b\"\n\u0001é","flag":true,"#.to_owned()
                + r#""hex":"ffffffffffffffffffffffffffffffff","empty":{},"list":[{"n":1},{"n":2}],"none":[],"#
                + r#""raw":[1.50, null]}"#
        );

        let mut read = Reader::of(&text, "it").unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(read.number("number"), Ok(7));
        assert_eq!(read.maybe_signed("below"), Ok(Some(-3)));
        assert_eq!(read.text("text"), Ok("a \"b\"\n\u{1}\u{e9}".to_owned()));
        assert_eq!((read.flag("flag"), read.flag("flag")), (Ok(true), Ok(false)));
        assert_eq!(read.hex("hex"), Ok(u128::MAX));
        assert_eq!(read.part("empty", |part| Ok(part.fields.len())), Ok(0));
        assert_eq!(read.list("list", |item| item.number("n")), Ok(vec![1, 2]));
        assert_eq!(read.list("none", |item| item.number("n")), Ok(vec![]));
        let left: Vec<(String, Arc<str>)> = read.left_over();
        assert_eq!(left, [("raw".to_owned(), "[1.50, null]".into())]);
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_named() {
        let read = || Reader::of(r#"{"a":"x","b":[1],"c":{"d":1},"e":9007199254740991}"#, "it").ok();
        let wrong = |what: fn(&mut Reader<'_>) -> Option<String>| read().and_then(|mut read| what(&mut read));
        let told = |what: &str| Some(what.to_owned());
        assert_eq!(wrong(|read| read.number("x").err()), told("`x` is missing"));
        assert_eq!(wrong(|read| read.number("a").err()), told("`a` is not a number"));
        assert_eq!(wrong(|read| read.text("b").err()), told("`b` is not text"));
        assert_eq!(wrong(|read| read.hex("a").err()), told("`a` is not a hexadecimal number"));
        assert_eq!(wrong(|read| read.flag("a").err()), told("`a` is not true or false"));
        assert_eq!(wrong(|read| read.list("a", |_| Ok(())).err()), told("`a` is not a list"));
        assert_eq!(wrong(|read| read.list("b", |_| Ok(())).err()), told("`b` is not an object"));
        assert_eq!(wrong(|read| read.part("b", |_| Ok(())).err()), told("`b` is not an object"));
        assert_eq!(wrong(|read| read.part("x", |_| Ok(())).err()), told("`x` is missing"));
        assert_eq!(wrong(|read| read.part("c", |part| part.small("d")).err()), None);
        let limit = "`e` is 9007199254740991; the maximum is 9007199254740990";
        assert_eq!(wrong(|read| read.number("e").err()), told(limit));
        for torn in ["", "{", "[]", "7", r#"{"a":1}x"#, r#"{"a":}"#, r#"{a:1}"#] {
            assert_eq!(Reader::of(torn, "it").err(), told("`it` is not an object"), "{torn}");
        }
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_counts_and_none_is_left_over() {
        let mut read =
            Reader::of(r#"{"a":1,"\u0061":2,"b":3}"#, "it").unwrap_or_else(|what| panic!("{what}"));

        assert_eq!(read.number("a"), Ok(2));

        let left: Vec<(String, Arc<str>)> = read.left_over();
        assert_eq!(left, [("b".to_owned(), "3".into())]);
    }
}
