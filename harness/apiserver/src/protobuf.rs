//! Bodies in protobuf, as Kubernetes' own clients send built-in types: four bytes, and an envelope that names
//! the kind of the message in it. They are read into the JSON that says the same, and answers are made of it.
//!
//! Source: "Kubernetes Protobuf encoding" in the Kubernetes API concepts.

mod encode;
mod numbers;
mod wire;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Map, Value};

use crate::defaults::base64;
use crate::error::ApiError;
use crate::resource::Resource;
use crate::response::Body;
use crate::{clock, typed};
use numbers::{Message, message, of_kind};
use wire::{Broken, Field, Fields};

pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8; 4] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Prefix,
    #[error("{0}")]
    Wire(#[from] Broken),
    #[error("field {0:?} of {1} does not hold what it should")]
    Field(&'static str, &'static str),
    #[error("{1:?} in version {0:?}")]
    Kind(String, String),
}

/// The body as JSON, if it came as protobuf and can be read, with the headers changed to that. What cannot be read stays
/// as it is, for [`refusal`] to tell why.
pub(crate) fn in_json(headers: &mut HeaderMap, body: Bytes) -> Bytes {
    let protobuf = |value: &HeaderValue| value.to_str().is_ok_and(|media| media.split(';').next() == Some(MEDIA));
    // No body at all is no protobuf either: a delete without options.
    if body.is_empty() || !headers.get(header::CONTENT_TYPE).is_some_and(protobuf) {
        return body;
    }
    match decode(&body) {
        Ok(value) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            value.to_string().into()
        }
        Err(_) => body,
    }
}

/// Whether objects of a type can be shown in protobuf. Custom resources have no messages.
pub(crate) fn shows(resource: &Resource, version: usize) -> bool {
    !resource.custom && of_kind(&resource.api_version(version), &resource.kind).is_some()
}

/// Whether protobuf is what the client wants first, of what can be had.
pub(crate) fn preferred(accept: &str) -> bool {
    let known = |media: &&str| {
        let base = media.split(';').next().unwrap_or_default().trim();
        match base {
            // Tables have no message.
            MEDIA => !media.contains("as=Table"),
            "application/json" | "application/yaml" | "application/*" | "*/*" => true,
            _ => false,
        }
    };
    accept.split(',').map(str::trim).find(known).is_some_and(|media| media.starts_with(MEDIA))
}

/// A JSON answer in protobuf, with the headers changed to that: an object, or each event of a watch. What has no message
/// stays as it is.
pub(crate) fn in_protobuf(response: Response<Body>, stream: bool) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if head.headers.get(header::CONTENT_TYPE).is_none_or(|media| media != "application/json") {
        return Response::from_parts(head, body);
    }
    if stream {
        let media = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
        head.headers.insert(header::CONTENT_TYPE, media);
        // Of an event that is torn apart nothing can be told.
        let body = body.map(|whole| whole, |line| encode::event(&line).unwrap_or_default());
        return Response::from_parts(head, body);
    }
    let body = body.mapped(|json| {
        let value = serde_json::from_slice::<Value>(&json).ok();
        match value.and_then(|value| encode::encode(&value)) {
            Some(bytes) => {
                head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
                bytes.into()
            }
            None => json,
        }
    });
    Response::from_parts(head, body)
}

/// The answer to a body in protobuf that [`in_json`] could not read.
pub(crate) fn refusal(resource: &Resource, body: &[u8]) -> ApiError {
    if resource.custom {
        return ApiError::unsupported_media("application/json, application/yaml");
    }
    match decode(body) {
        Err(Problem::Kind(api_version, kind)) => {
            ApiError::unsupported(format_args!("{kind:?} of {api_version:?} as {MEDIA}; send it as application/json"))
        }
        Err(problem) => ApiError::bad_request(format!("the body of the request could not be decoded: {problem}")),
        Ok(_) => ApiError::bad_request("an empty body is no object"),
    }
}

/// An object in its envelope.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Problem> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Problem::Prefix)?;
    let (mut kind, mut raw) = (Vec::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Field::Bytes(of)) => kind = of.to_vec(),
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut api_version, mut name) = (String::new(), String::new());
    for field in Fields(&kind) {
        match field? {
            (1, Field::Bytes(of)) => api_version = String::from_utf8_lossy(of).into_owned(),
            (2, Field::Bytes(of)) => name = String::from_utf8_lossy(of).into_owned(),
            _ => {}
        }
    }
    let Some(of) = of_kind(&api_version, &name) else { return Err(Problem::Kind(api_version, name)) };
    let mut object = Map::new();
    object.insert("kind".into(), name.into());
    object.insert("apiVersion".into(), api_version.into());
    fill(&mut object, raw, of, of.name)?;
    Ok(Value::Object(object))
}

/// Reads a message into the members of an object, whose types are those of the type `typed_as`. Numbers that are not
/// known are skipped.
fn fill(object: &mut Map<String, Value>, bytes: &[u8], of: &'static Message, typed_as: &str) -> Result<(), Problem> {
    for field in Fields(bytes) {
        let (number, found) = field?;
        let Some(field) = of.field(number) else { continue };
        let wrong = Problem::Field(field.name, of.name);
        if field.name.is_empty() {
            let inlined = field.kind.and_then(message).ok_or(wrong)?;
            fill(object, bytes_of(found).ok_or(Problem::Field(inlined.name, of.name))?, inlined, typed_as)?;
            continue;
        }
        let Some(kind) = field.kind.or_else(|| typed::kind(typed_as, field.name)) else { continue };
        if let Some(of_elements) = kind.strip_prefix('[') {
            let element = value(found, of_elements)?.ok_or(wrong)?;
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new())) {
                list.push(element);
            }
        } else if let Some(of_values) = kind.strip_prefix('{') {
            let (key, value) = entry(bytes_of(found).ok_or(wrong)?, of_values)?;
            if let Value::Object(map) = object.entry(field.name).or_insert_with(|| Value::Object(Map::new())) {
                map.insert(key, value);
            }
        } else if let Some(value) = value(found, kind)?.filter(|value| field.keeps_zero || !is_zero(value)) {
            object.insert(field.name.into(), value);
        }
    }
    Ok(())
}

/// What a field that cannot be absent holds when nobody has set it.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn bytes_of(field: Field<'_>) -> Option<&[u8]> {
    match field {
        Field::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// A map's entry: a message of a key and a value, either of which may be absent when it is zero.
fn entry(bytes: &[u8], kind: &'static str) -> Result<(String, Value), Problem> {
    let (mut key, mut found) = (String::new(), Field::Bytes(&[]));
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => key = text_of(text)?,
            (2, of_value) => found = of_value,
            _ => {}
        }
    }
    let value = value(found, kind)?.unwrap_or(Value::Null);
    Ok((key, value))
}

fn text_of(bytes: &[u8]) -> Result<String, Problem> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Problem::Field("string", "UTF-8"))
}

/// A value of that kind, as the table of types names it. `None`: a time that is not set.
fn value(found: Field<'_>, kind: &'static str) -> Result<Option<Value>, Problem> {
    let wrong = || Problem::Field(kind, "the table of types");
    let value = match (kind, found) {
        ("s", Field::Bytes(text)) => text_of(text)?.into(),
        ("y", Field::Bytes(bytes)) => base64(bytes).into(),
        // Integers are sign-extended to 64 bits.
        ("i" | "l", Field::Varint(number)) => number.cast_signed().into(),
        ("b", Field::Varint(number)) => (number != 0).into(),
        ("n", Field::Fixed64(bits)) => f64::from_bits(bits).into(),
        ("t" | "m", Field::Bytes(of)) => return time(of, kind == "m"),
        ("x", Field::Bytes(of)) => number_or_text(of)?,
        ("q", Field::Bytes(of)) => inner(of)?.map_or_else(|| Ok("0".to_owned()), text_of)?.into(),
        ("o", Field::Bytes(of)) => match inner(of)? {
            Some(json) => serde_json::from_slice(json).map_err(|_| wrong())?,
            None => Value::Null,
        },
        (name, Field::Bytes(of)) if name.len() > 1 => {
            let mut object = Map::new();
            // What the table lacks is newer than the messages: it stays empty.
            if let Some(message) = message(name) {
                fill(&mut object, of, message, name)?;
            }
            Value::Object(object)
        }
        _ => return Err(wrong()),
    };
    Ok(Some(value))
}

/// The one field of a message that wraps a text, if it is set.
fn inner(message: &[u8]) -> Result<Option<&[u8]>, Problem> {
    let mut found = None;
    for field in Fields(message) {
        if let (1, Field::Bytes(bytes)) = field? {
            found = Some(bytes);
        }
    }
    Ok(found.filter(|bytes| !bytes.is_empty()))
}

/// Seconds and nanoseconds; nothing at all is no time.
fn time(message: &[u8], micro: bool) -> Result<Option<Value>, Problem> {
    if message.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, Field::Varint(value)) => seconds = value,
            (2, Field::Varint(value)) => nanos = value,
            _ => {}
        }
    }
    // The last second of the year 9999 is the last one with a text; nobody sends times before 1970.
    if seconds > 253_402_300_799 || nanos > 999_999_999 {
        return Err(Problem::Field("seconds", "Time"));
    }
    let text = clock::rfc3339(seconds);
    Ok(Some(match micro {
        true => format!("{}.{:06}Z", text.trim_end_matches('Z'), nanos / 1_000).into(),
        false => text.into(),
    }))
}

/// `IntOrString`: which of the two it is, the number, and the text.
fn number_or_text(message: &[u8]) -> Result<Value, Problem> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in Fields(message) {
        match field? {
            (1, Field::Varint(kind)) => is_text = kind == 1,
            (2, Field::Varint(value)) => number = value.cast_signed(),
            (3, Field::Bytes(bytes)) => text = text_of(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

#[cfg(test)]
mod tests;
