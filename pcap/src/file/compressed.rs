//! Captures that are compressed with gzip or zstd, told by their first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, StreamingDecoder};

/// The largest window that zstd itself accepts by default. It bounds the memory that a file can claim.
const MAX_ZSTD_WINDOW: u64 = 128 << 20;

/// The header of a last zstd block, raw and empty, and room for the checksum of a frame (RFC 8878, section 3.1.1).
const LAST_ZSTD_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// The input as it is, or decompressed where it begins as gzip or zstd does. No `BufReader` is needed
/// around it or in it.
///
/// Memory: 64 KiB for gzip; for zstd the window that the file asks for, 128 MiB at most.
///
/// # Errors
///
/// What the input returns, and a zstd header that makes no sense. [`io::ErrorKind::Unsupported`] for another compression:
/// lz4, which Wireshark reads, xz and bzip2.
pub fn decompressed<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = [0; 4];
    let have = read_up_to(&mut input, &mut magic)?;
    if let Some(other) = unsupported(magic) {
        let text = format!("compressed with {other}, expected gzip, zstd or no compression");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let input = BufReader::new(Cursor::new(magic).take(have as u64).chain(input));
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(BufReader::new(MultiGzDecoder::new(input))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(BufReader::new(Frames::new(input)?)),
        _ => Box::new(input),
    })
}

/// Returns the name of a compression that is recognized and not supported.
const fn unsupported(magic: [u8; 4]) -> Option<&'static str> {
    match magic {
        [0x04, 0x22, 0x4d, 0x18] => Some("lz4"),
        [0xfd, b'7', b'z', b'X'] => Some("xz"),
        [b'B', b'Z', b'h', _] => Some("bzip2"),
        _ => None,
    }
}

/// The frames of a zstd file, of which a file may have several.
struct Frames<R: BufRead> {
    /// `None` after the last, or an error.
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
    /// Error that follows the decoded bytes of the frame.
    failure: Option<io::Error>,
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> io::Result<Self> {
        let frame = StreamingDecoder::new_with_max_window_size(input, MAX_ZSTD_WINDOW);
        Ok(Self { frame: Some(frame.map_err(io::Error::other)?), failure: None })
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some(mut frame) = self.frame.take() {
            let n = match frame.read(bytes) {
                Ok(n) => n,
                Err(error) if self.failure.is_none() && end(&mut frame.decoder) => {
                    self.failure = Some(error);
                    self.frame = Some(frame);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if n > 0 || bytes.is_empty() {
                self.frame = Some(frame);
                return Ok(n);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            let (mut input, decoder) = frame.into_parts();
            let (sum, stored) =
                (decoder.get_calculated_checksum(), decoder.get_checksum_from_data());
            if stored.is_some() && sum != stored {
                return Err(io::Error::other("the checksum of a zstd frame does not hold"));
            }
            if !input.fill_buf()?.is_empty() {
                *self = Self::new(input)?;
            }
        }
        Ok(0)
    }
}

/// Ends a frame that is cut off or damaged, because the decoder keeps the last window of a frame until its last block. Returns
/// false if the decoder has no frame.
fn end(decoder: &mut FrameDecoder) -> bool {
    let strategy = BlockDecodingStrategy::UptoBlocks(1);
    decoder.decode_blocks(&LAST_ZSTD_BLOCK[..], strategy).is_ok()
}

/// Fills `bytes`, or as much of them as there is before the end of the file.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < bytes.len() {
        match input.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn whole(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompressed(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn what_was_compressed_comes_out_also_of_several_pieces() {
        let bytes: Vec<u8> =
            (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 9).to_le_bytes()[0]).collect();
        let (first, second) = bytes.split_at(100_000);
        assert_eq!(whole(&bytes).unwrap(), bytes);
        assert_eq!(whole(&[gzip(first), gzip(second)].concat()).unwrap(), bytes);
        assert_eq!(whole(&[zstd(first), zstd(second)].concat()).unwrap(), bytes);
        for short in [&b""[..], b"abc"] {
            assert_eq!(whole(short).unwrap(), short);
        }
    }

    #[test]
    fn what_is_cut_or_damaged_is_an_error() {
        for compressed in [gzip(&[7; 5000]), zstd(&[7; 5000])] {
            assert!(whole(&compressed[..compressed.len() - 3]).is_err());
            let mut damaged = compressed;
            let at = damaged.len() - 2;
            damaged[at] ^= 0x10;
            assert!(whole(&damaged).is_err());
        }
        // A window of 2^41 bytes.
        assert!(whole(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0]).is_err());
    }

    #[test]
    fn bytes_before_a_cut_come_out() {
        // The blocks end at multiples of 128 KiB, and the window is larger than the content.
        let bytes: Vec<u8> =
            (0..400_000u32).map(|i| (i >> 2).to_le_bytes()[i as usize % 4]).collect();
        for compressed in [gzip(&bytes), zstd(&bytes)] {
            for (cut, least) in [(compressed.len() / 2, 100_000), (compressed.len() - 1, 400_000)] {
                let mut out = Vec::new();
                let ended = decompressed(&compressed[..cut]).unwrap().read_to_end(&mut out);
                assert!(ended.is_err() && out.len() >= least, "{} bytes of {cut}", out.len());
                assert!(bytes.starts_with(&out));
            }
        }
    }
}
