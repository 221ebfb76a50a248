//! PixArt-Sigma: PixArt-alpha's transformer for longer captions, up to 4K.
//!
//! Its configs say the rest: no conditions of the picture's size, another VAE.

use folder::ModelFolder;

use crate::description::{Description, Family};
use crate::error::Result;
use crate::pixart::{ALPHA, TRAINED};
use crate::text::{EncoderRules, Padding, Preparation, TextRules};

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "pixart_sigma",
    title: "PixArt-Sigma",
    classes: &["PixArtSigmaPipeline"],
    text: &[EncoderRules {
        class: "T5EncoderModel",
        rules: TextRules {
            preparation: Preparation::Plain,
            max_tokens: 300,
            padding: Padding::Masked,
        },
    }],
    describe,
    ..ALPHA
};

/// The side of the latents of the largest models.
const LARGEST: usize = 256;

/// Proportions that only the largest models were trained at, in sixteenths of their base size.
const FINER: [(f64, [usize; 2]); 7] = [
    (0.26, [8, 31]),
    (0.27, [8, 30]),
    (2.89, [26, 9]),
    (3.11, [28, 9]),
    (3.62, [29, 8]),
    (3.75, [30, 8]),
    (3.88, [31, 8]),
];

fn describe(family: &'static Family, folder: &ModelFolder) -> Result<Description> {
    let alpha = (ALPHA.describe)(family, folder)?;
    let [_, side, _] = alpha.defaults.size;
    let trained_sizes = match side / alpha.geometry.factors[1] {
        LARGEST => {
            let unit = LARGEST * 8 / 16;
            let scaled = |(proportion, sides): (f64, [usize; 2])| {
                (proportion, sides.map(|sixteenths| sixteenths * unit))
            };
            TRAINED.into_iter().chain(FINER).map(scaled).collect()
        }
        _ => alpha.trained_sizes,
    };
    Ok(Description { trained_sizes, ..alpha })
}
