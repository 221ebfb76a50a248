//! The 256 colours of a GIF, chosen for a whole clip so that they do not flicker.

use color_quant::NeuQuant;
use std::collections::{HashMap, HashSet};

/// As many colours as a GIF has.
const COLOURS: usize = 256;

/// How many pixels are looked at; more would not change the palette.
const ENOUGH: usize = 1 << 19;

/// How much the quantiser skips; 1 is the best.
const FASTNESS: i32 = 3;

/// Colours that agree in so many bits of each channel become the same one of the palette.
const UPPER_BITS: usize = 6;

/// How often what it finds is improved; more would not be seen.
const ROUNDS: usize = 8;

/// Sees the pixels of a clip go by and chooses its palette.
pub(super) struct PaletteMaker {
    /// All colours, as long as a palette can hold them.
    distinct: Option<HashSet<[u8; 3]>>,
    /// An even sample of the pixels, as RGBA.
    sample: Vec<u8>,
    /// Every so manieth pixel is kept; doubled whenever there are too many.
    stride: usize,
    /// Pixels until the next one is kept.
    wait: usize,
}

impl PaletteMaker {
    pub(super) fn new() -> PaletteMaker {
        PaletteMaker { distinct: Some(HashSet::new()), sample: Vec::new(), stride: 1, wait: 0 }
    }

    /// Looks at the pixels of the next frame.
    pub(super) fn see(&mut self, pixels: &[[u8; 3]]) {
        if let Some(distinct) = &mut self.distinct {
            // Neighbours are mostly alike.
            let mut last = None;
            for pixel in pixels {
                if last != Some(pixel) && distinct.len() <= COLOURS {
                    distinct.insert(*pixel);
                }
                last = Some(pixel);
            }
            if distinct.len() > COLOURS {
                self.distinct = None;
            }
        }
        for [red, green, blue] in pixels {
            if self.wait > 0 {
                self.wait -= 1;
                continue;
            }
            self.sample.extend([*red, *green, *blue, 255]);
            self.wait = self.stride - 1;
            if self.sample.len() > 4 * ENOUGH {
                self.thin();
            }
        }
    }

    /// Leaves out every other pixel of the sample.
    fn thin(&mut self) {
        self.sample = self.sample.chunks(8).flat_map(|pair| &pair[..4]).copied().collect();
        self.stride *= 2;
        self.wait = self.stride - 1;
    }

    /// The palette: exact if the clip has few colours, else learnt from it.
    pub(super) fn finish(self) -> Palette {
        if let Some(distinct) = self.distinct {
            let mut colours: Vec<[u8; 3]> = distinct.into_iter().collect();
            colours.sort_unstable();
            let known = colours.iter().zip(0..=255).map(|(colour, i)| (*colour, i)).collect();
            return Palette { colours, lookup: Lookup::Exact(known) };
        }
        let first = NeuQuant::new(FASTNESS, COLOURS, &self.sample).color_map_rgb();
        let mut colours: Vec<[u8; 3]> = first.chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let bins = histogram(&self.sample);
        for _ in 0..ROUNDS {
            improve(&mut colours, &bins);
        }
        Palette { colours, lookup: Lookup::Nearest(vec![None; 1 << (3 * UPPER_BITS)]) }
    }
}

/// Colours that are nearly the same, by their mean, and how often there are such.
fn histogram(sample: &[u8]) -> Vec<([f32; 3], f32)> {
    let mut bins: HashMap<[u8; 3], ([f32; 3], f32)> = HashMap::new();
    for pixel in sample.chunks_exact(4) {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]];
        let (sum, count) = bins.entry([red >> 3, green >> 3, blue >> 3]).or_default();
        sum.iter_mut().zip([red, green, blue]).for_each(|(sum, value)| *sum += f32::from(value));
        *count += 1.0;
    }
    // A map has no order; sums of floats must have one.
    let mut bins: Vec<_> = bins.into_iter().collect();
    bins.sort_unstable_by_key(|(place, _)| *place);
    bins.into_iter().map(|(_, (sum, count))| (sum.map(|sum| sum / count), count)).collect()
}

/// One round of Lloyd's: every colour moves to the middle of what is nearest to it.
fn improve(colours: &mut [[u8; 3]], bins: &[([f32; 3], f32)]) {
    let mut sums = vec![([0.0; 3], 0.0); colours.len()];
    for (mean, count) in bins {
        let (sum, total): &mut ([f32; 3], f32) = &mut sums[nearest(colours, *mean)];
        sum.iter_mut().zip(mean).for_each(|(sum, value)| *sum += value * count);
        *total += count;
    }
    for (colour, (sum, total)) in colours.iter_mut().zip(sums) {
        // One that is nearest to nothing stays where it is.
        if total > 0.0 {
            *colour = sum.map(|sum| (sum / total).round() as u8);
        }
    }
}

/// The index of the colour that is nearest to `wanted`.
fn nearest(colours: &[[u8; 3]], wanted: [f32; 3]) -> usize {
    let distance = |colour: &[u8; 3]| {
        let square = |(a, b): (&u8, f32)| (f32::from(*a) - b) * (f32::from(*a) - b);
        colour.iter().zip(wanted).map(square).sum::<f32>()
    };
    let places = colours.iter().map(distance).enumerate();
    places.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place)
}

/// Up to 256 colours, and the nearest one to any colour.
pub(super) struct Palette {
    colours: Vec<[u8; 3]>,
    lookup: Lookup,
}

/// How a colour is found in the palette.
enum Lookup {
    /// Every colour of the clip is there.
    Exact(HashMap<[u8; 3], u8>),
    /// By the upper bits of the three channels; filled where it was looked at.
    Nearest(Vec<Option<u8>>),
}

impl Palette {
    /// The colours as bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.colours.concat()
    }

    /// Whether no colour has to be rounded.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.lookup, Lookup::Exact(_))
    }

    /// The index of the colour nearest to this one.
    pub(super) fn index(&mut self, colour: [u8; 3]) -> u8 {
        match &mut self.lookup {
            Lookup::Exact(known) => known.get(&colour).copied().unwrap_or_default(),
            Lookup::Nearest(table) => {
                let place = colour.iter().fold(0, |place, channel| {
                    place << UPPER_BITS | usize::from(channel >> (8 - UPPER_BITS))
                });
                let search = || nearest(&self.colours, colour.map(f32::from)) as u8;
                *table[place].get_or_insert_with(search)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_colours_are_kept_exactly() {
        let pixels: Vec<[u8; 3]> = (0..=255).map(|i| [i, 255 - i, i / 2]).collect();
        let mut maker = PaletteMaker::new();
        maker.see(&pixels);
        maker.see(&pixels);
        let mut palette = maker.finish();
        assert!(palette.is_exact());
        assert_eq!(palette.bytes().len(), 3 * 256);
        for pixel in pixels {
            let index = usize::from(palette.index(pixel));
            assert_eq!(palette.bytes()[3 * index..3 * index + 3], pixel);
        }
    }

    #[test]
    fn many_colours_are_rounded_to_near_ones() {
        let grid = || (0..=255).step_by(9);
        let pixels: Vec<[u8; 3]> = grid()
            .flat_map(|red| {
                grid().flat_map(move |green| grid().map(move |blue| [red, green, blue]))
            })
            .collect();
        let mut maker = PaletteMaker::new();
        maker.see(&pixels);
        let mut palette = maker.finish();
        assert!(!palette.is_exact());
        let mut squares = 0.0;
        for pixel in &pixels {
            let start = 3 * usize::from(palette.index(*pixel));
            let near = &palette.bytes()[start..start + 3];
            let far = pixel.iter().zip(near).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
            squares += far.sum::<f64>();
        }
        let distance = (squares / pixels.len() as f64).sqrt();
        assert!(distance < 36.0, "colours are {distance} away");
    }

    #[test]
    fn a_long_clip_is_sampled_evenly() {
        let mut maker = PaletteMaker::new();
        for frame in 0..40u32 {
            let pixel = |i: u32| [(i % 251) as u8, frame as u8, (i / 251) as u8];
            maker.see(&(0..50_000).map(pixel).collect::<Vec<_>>());
        }
        assert_eq!(maker.stride, 4);
        let count = maker.sample.len() / 4;
        assert!(count.abs_diff(2_000_000 / 4) < 4, "{count}");
        let of_frame = |frame: u8| maker.sample.chunks(4).filter(|pixel| pixel[1] == frame).count();
        assert!((0..40).all(|frame| of_frame(frame).abs_diff(12_500) < 4));
    }
}
