//! Rows that the functions answer, read. Each function answers one row, with arrays.

use tenure_core::{Incarnation, Key, StoreTime, Version};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::error::Failure;
use crate::store::backend::{History, Snapshot, Stored};
use crate::store::codec::key_of;

/// The records in a row, each with its index among `keys`, which the server counts from 1.
pub(super) fn stored_at_places(
    row: &Row,
    keys: &[Key],
) -> Result<impl Iterator<Item = Result<(usize, Stored), Failure>>, Failure> {
    let places: Vec<i32> = array(row, "places")?;
    let texts = texts(row)?;
    Ok(places.into_iter().zip(texts).map(|(place, text)| {
        let index = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
        let found = index.and_then(|index| Some((index, keys.get(index)?)));
        let (index, key) = found.ok_or_else(|| Failure::corrupt("a record that was not asked for"))?;
        Ok((index, stored(key, text)?))
    }))
}

/// The records of a listing.
pub(super) fn listed(row: &Row) -> Result<Vec<Stored>, Failure> {
    let names: Vec<String> = array(row, "keys")?;
    let records = names.iter().zip(texts(row)?).map(|(name, text)| {
        let key = key_of(name).ok_or_else(|| Failure::corrupt("a key that is not Tenure's"))?;
        stored(&key, text)
    });
    records.collect()
}

pub(super) fn snapshot(row: &Row, records: Vec<Stored>) -> Result<Snapshot, Failure> {
    let now = now(row)?;
    Ok(Snapshot { life: life(row)?, now: Some(now), wall: Some(now.as_micros()), records })
}

pub(super) fn history(row: &Row) -> Result<History, Failure> {
    let (times, texts): (Vec<i64>, Vec<String>) = (array(row, "times")?, array(row, "entries")?);
    let entries = times.into_iter().zip(texts).map(|(at, text)| Ok((Some(time(at)?), text.into())));
    Ok(History { now: Some(now(row)?), entries: entries.collect::<Result<_, Failure>>()? })
}

pub(super) fn life(row: &Row) -> Result<Incarnation, Failure> {
    let bytes: &[u8] = row.try_get("life")?;
    let bytes = bytes.try_into().map_err(|_| Failure::corrupt("a life that is not 16 bytes"))?;
    Ok(Incarnation(u128::from_be_bytes(bytes)))
}

/// The server's clock at the end of the call.
pub(super) fn now(row: &Row) -> Result<StoreTime, Failure> {
    time(row.try_get("now_us")?)
}

pub(super) fn time(micros: i64) -> Result<StoreTime, Failure> {
    let micros = u64::try_from(micros).map_err(|_| Failure::corrupt("a time before 1970"))?;
    Ok(StoreTime::from_micros(micros))
}

/// An array; the server answers nothing instead of an empty one.
pub(super) fn array<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<Vec<T>, Failure> {
    Ok(row.try_get::<_, Option<Vec<T>>>(column)?.unwrap_or_default())
}

/// Version, stamp and text of a record.
type Columns = (Option<i64>, Option<i64>, Option<String>);

fn texts(row: &Row) -> Result<impl Iterator<Item = Columns>, Failure> {
    let (versions, stamps) = (array(row, "versions")?, array(row, "stamps")?);
    let texts: Vec<Option<String>> = array(row, "texts")?;
    Ok(versions.into_iter().zip(stamps).zip(texts).map(|((version, stamp), text)| (version, stamp, text)))
}

fn stored(key: &Key, (version, stamp, text): Columns) -> Result<Stored, Failure> {
    let version = Version(version.unwrap_or_default().cast_unsigned());
    if version == Version::NONE {
        return Ok(Stored::absent(key.clone()));
    }
    let stamp = stamp.map(time).transpose()?;
    Ok(Stored { key: key.clone(), version, stamp, value: text.map(Into::into) })
}
