//! The wire format of protocol buffers: a message is a run of numbered fields.

/// What a field holds, before its type is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// A message that ends in the middle, or has a field of no known kind.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("unexpected end of the message")]
    Short,
    #[error("a number of more than 64 bits")]
    Long,
    #[error("field {0} has the wire type {1}, which no message has")]
    Kind(u64, u64),
}

/// The fields of a message, in their order.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0;
        for at in 0..10 {
            let (byte, rest) = self.0.split_first().ok_or(Broken::Short)?;
            self.0 = rest;
            // Of the tenth byte one bit fits.
            if at == 9 && *byte > 1 {
                return Err(Broken::Long);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Long)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Broken> {
        let count = usize::try_from(count).map_err(|_| Broken::Short)?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Broken::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Broken::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), Broken> {
        let key = self.varint()?;
        let number = key >> 3;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return Err(Broken::Kind(number, kind)),
        };
        Ok((number, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing behind it can be told apart.
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_a_broken_one_is_the_last() {
        type Read<'t> = Result<(u64, Field<'t>), Broken>;
        let table: [(&[u8], &[Read<'_>]); 9] = [
            (&[], &[]),
            (&[0x08, 0x96, 0x01], &[Ok((1, Field::Varint(150)))]),
            (&[0x12, 2, b'h', b'i', 0x18, 0], &[Ok((2, Field::Bytes(b"hi"))), Ok((3, Field::Varint(0)))]),
            (&[0x0d, 1, 0, 0, 0], &[Ok((1, Field::Fixed32(1)))]),
            (&[0x09, 1, 0, 0, 0, 0, 0, 0, 0], &[Ok((1, Field::Fixed64(1)))]),
            (&[0x12, 3, b'h', b'i'], &[Err(Broken::Short)]),
            (&[0x08, 0x80], &[Err(Broken::Short)]),
            (&[0x0b, 0x08, 0], &[Err(Broken::Kind(1, 3))]),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], &[Err(Broken::Long)]),
        ];
        for (bytes, expected) in table {
            assert_eq!(Fields(bytes).collect::<Vec<_>>(), expected, "{bytes:x?}");
        }
        let minus_one = [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(Fields(&minus_one).next(), Some(Ok((1, Field::Varint(u64::MAX)))));
    }
}
