//! How records are written down: the names of their keys and, as JSON, their values.

use tenure_core::{Key, LeaseId, ResourceName};

/// The name of a record in a database, such as `resource/nightly-report` or `lease/00f3..`.
#[must_use]
pub fn key_name(key: &Key) -> String {
    match key {
        Key::Meta => "meta".to_owned(),
        Key::Ttls => "ttls".to_owned(),
        Key::Lease(lease) => format!("lease/{:032x}", lease.0),
        Key::Info(lease) => format!("info/{:032x}", lease.0),
        Key::Resource(name) => format!("resource/{name}"),
        Key::Runs(name) => format!("runs/{name}"),
    }
}

/// The key of a record by its name in a database; nothing if it is no name of ours.
#[must_use]
pub fn key_of(name: &str) -> Option<Key> {
    let lease = |hex: &str| {
        let ours = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        ours.then(|| u128::from_str_radix(hex, 16).ok().map(LeaseId))?
    };
    match name.split_once('/') {
        None if name == "meta" => Some(Key::Meta),
        None if name == "ttls" => Some(Key::Ttls),
        Some(("lease", hex)) => lease(hex).map(Key::Lease),
        Some(("info", hex)) => lease(hex).map(Key::Info),
        Some(("resource", name)) => ResourceName::new(name).ok().map(Key::Resource),
        Some(("runs", name)) => ResourceName::new(name).ok().map(Key::Runs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_name() {
        let name = |text| ResourceName::new(text).expect("a name");
        let keys = [
            Key::Meta,
            Key::Ttls,
            Key::Lease(LeaseId(0x1f)),
            Key::Info(LeaseId(u128::MAX)),
            Key::Resource(name("a/b {c}")),
            Key::Runs(name("meta")),
        ];
        for key in keys {
            assert_eq!(key_of(&key_name(&key)), Some(key));
        }
        for stranger in
            ["", "meta/", "lease/1f", "lease/+0000000000000000000000000000001f", "resource/", "x/y"]
        {
            assert_eq!(key_of(stranger), None, "{stranger}");
        }
    }
}
