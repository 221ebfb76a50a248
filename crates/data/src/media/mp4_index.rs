//! The index of an MP4 file with a sound: what of the sound is heard, to the sample.
//!
//! An AAC encoder begins with silence of its own and fills its last frame with more. An edit list says which samples
//! are the sound; the muxer writes none, so its index is written anew with one.

use super::aac::Aac;
use shiguredo_mp4::boxes::{EdtsBox, ElstBox, ElstEntry, FreeBox, HdlrBox, MoovBox};
use shiguredo_mp4::mux::FinalizedBoxes;
use shiguredo_mp4::{BoxHeader, Encode, FixedPointNumber};
use std::num::NonZeroU32;

/// What is to be written where: the beginning of the file, and the index behind the `end` if it has no room there.
///
/// # Errors
/// A number does not fit its field.
pub(super) fn head_with_edits(
    boxes: &FinalizedBoxes,
    sound: &Aac,
    end: u64,
) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let refused = |error: shiguredo_mp4::Error| error.to_string();
    let moov = with_edits(boxes.moov_box(), sound).encode_to_vec().map_err(refused)?;
    let mut parts: Vec<(u64, Vec<u8>)> =
        boxes.offset_and_bytes_pairs().map(|(at, own)| (at, own.to_vec())).collect();
    // The muxer's own index, if it went to the end, is replaced.
    parts.retain(|(at, _)| *at < end);
    let Some((_, head)) = parts.iter_mut().find(|(at, _)| *at == 0) else {
        return Err("the file has no beginning".to_owned());
    };
    let room = head.len();
    let begins = head.first_chunk().map(|own| u32::from_be_bytes(*own) as usize);
    let begins = begins.filter(|own| *own <= room);
    head.truncate(begins.ok_or("the file has no beginning")?);
    let left = room - head.len();
    let fits = left == moov.len() || left >= moov.len() + BoxHeader::MIN_SIZE;
    if fits {
        head.extend(&moov);
    }
    if room > head.len() {
        let payload = vec![0; room - head.len() - BoxHeader::MIN_SIZE];
        head.extend(FreeBox { payload }.encode_to_vec().map_err(refused)?);
    }
    if !fits {
        parts.push((end, moov));
    }
    Ok(parts)
}

/// The index with an edit list for the sound, counted in ticks that both tracks have whole numbers of.
fn with_edits(moov: &MoovBox, sound: &Aac) -> MoovBox {
    let mut moov = moov.clone();
    let mut scales = moov.trak_boxes.iter().map(|own| own.mdia_box.mdhd_box.timescale.get());
    let scale = scales.try_fold(1, least_common_multiple);
    let scale = scale.and_then(NonZeroU32::new).or(NonZeroU32::new(sound.rate));
    let scale = scale.unwrap_or(NonZeroU32::MIN);
    let mut longest = 0;
    for track in &mut moov.trak_boxes {
        let (own, count) = (&track.mdia_box.mdhd_box, u64::from(scale.get()));
        let is_sound = track.mdia_box.hdlr_box.handler_type == HdlrBox::HANDLER_TYPE_SOUN;
        let length = if is_sound { sound.samples } else { own.duration };
        let ticks = (length * count).div_ceil(u64::from(own.timescale.get()));
        track.tkhd_box.duration = ticks;
        longest = longest.max(ticks);
        if is_sound {
            let entry = ElstEntry {
                edit_duration: ticks,
                media_time: i64::from(sound.priming),
                media_rate: FixedPointNumber::new(1, 0),
            };
            let list = ElstBox { entries: vec![entry] };
            track.edts_box = Some(EdtsBox { elst_box: Some(list), unknown_boxes: Vec::new() });
        }
    }
    moov.mvhd_box.timescale = scale;
    moov.mvhd_box.duration = longest;
    moov
}

fn least_common_multiple(a: u32, b: u32) -> Option<u32> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).checked_mul(b)
}
