//! What can go wrong: a scheduler config we do not support, or a step that cannot be taken.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a schedule could not be built or a step could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scheduler config cannot be read, or asks for what is not supported.
    #[error(transparent)]
    Config(#[from] nn::Error),

    /// A beta that is no share of variance.
    #[error("{class}: beta {beta} at timestep {timestep} is not between 0 and 1")]
    Beta {
        /// The scheduler class.
        class: String,
        /// The first timestep at fault.
        timestep: usize,
        /// The beta there.
        beta: f32,
    },

    /// The schedule cannot be cut into so many steps.
    #[error("{class}: cannot denoise in {steps} steps; choose 1 to {limit}")]
    Steps {
        /// The scheduler class.
        class: &'static str,
        /// How many were asked for.
        steps: usize,
        /// The most this schedule has.
        limit: usize,
    },

    /// There is nothing to stretch between pure noise and the level that the last step is to start from.
    #[error(
        "{class}: the last of {steps} steps would start at pure noise, and `shift_terminal` has it start at {terminal}; \
         ask for two steps or more"
    )]
    Terminal {
        /// The scheduler class.
        class: &'static str,
        /// How many were asked for.
        steps: usize,
        /// The level that the last step is to start from.
        terminal: f64,
    },

    /// A step starts outside of the trained timesteps.
    #[error(
        "{class}: timestep {timestep} is outside of the {trained} trained ones; \
         lower `steps_offset` or the number of steps"
    )]
    Timestep {
        /// The scheduler class.
        class: &'static str,
        /// The timestep at fault.
        timestep: i64,
        /// How many the process was trained with.
        trained: usize,
    },

    /// A coefficient of a step is infinite or not a number.
    #[error(
        "{class}: step {step} of {steps} has no finite solution; a schedule without signal at its \
         start needs `prediction_type` v_prediction or sample, one that repeats a noise level \
         needs fewer steps or a `solver_order` of 1"
    )]
    NotFinite {
        /// The scheduler class.
        class: &'static str,
        /// The step at fault, from 0.
        step: usize,
        /// How many steps there are.
        steps: usize,
    },

    /// Custom noise levels that do not fall from at most 1 to above 0.
    #[error(
        "{class}: custom sigmas must fall from at most 1 to above 0, but number {index} is {sigma}"
    )]
    Sigmas {
        /// The scheduler class.
        class: &'static str,
        /// The first level at fault.
        index: usize,
        /// Its value.
        sigma: f64,
    },

    /// Custom noise levels for a class that has none.
    #[error(
        "{class}: custom sigmas are not supported; FlowMatchEulerDiscreteScheduler has them, and \
         UniPCMultistepScheduler with `use_flow_sigmas`"
    )]
    NoCustomSigmas {
        /// The scheduler class.
        class: &'static str,
    },

    /// No explicit timesteps.
    #[error("renoise needs at least one timestep; allowed are falling {allowed}")]
    NoTimesteps {
        /// The timesteps that the process has.
        allowed: String,
    },

    /// Explicit timesteps that do not fall, or that the process does not have.
    #[error("renoise: timestep number {number} is {timestep}; allowed are falling {allowed}")]
    Timesteps {
        /// The first at fault, from 1.
        number: usize,
        /// Its value.
        timestep: f64,
        /// The timesteps that the process has.
        allowed: String,
    },

    /// A noise weight that the solver cannot use.
    #[error("{class}: eta {eta} is not supported; only DDIMScheduler has it, from 0 to 1")]
    Eta {
        /// The scheduler class.
        class: &'static str,
        /// The weight that was asked for.
        eta: f64,
    },

    /// A shift of noise levels where there is none.
    #[error(
        "{class} of this folder has no shift that can be chosen; flows with a static shift have one"
    )]
    NoFlowShift {
        /// The scheduler class.
        class: &'static str,
    },

    /// A shift that moves noise levels nowhere.
    #[error(
        "a shift of {shift} is not possible; give a number above 0, from 0.001 to 1000, 1 leaves levels as they are"
    )]
    FlowShift {
        /// The shift that was asked for.
        shift: f64,
    },

    /// A parameter of a timestep sampler that makes no density.
    #[error("{sampler}: {parameter} {value} is not supported; supported are {allowed}")]
    Sampler {
        /// The sampler's name.
        sampler: &'static str,
        /// The parameter at fault.
        parameter: &'static str,
        /// Its value.
        value: f64,
        /// The values that are supported.
        allowed: String,
    },

    /// A guidance scale that is not a number.
    #[error("guidance scale {scale} is not a finite number")]
    Guidance {
        /// The scale that was asked for.
        scale: f64,
    },

    /// A part of guidance that cannot be so.
    #[error("{what} is {got}; it must be {want}")]
    GuidanceTerm {
        /// Which part.
        what: &'static str,
        /// What was asked for.
        got: f64,
        /// What it can be.
        want: &'static str,
    },

    /// A step that the schedule does not have.
    #[error("there is no step {step}; the schedule has {steps}")]
    NoStep {
        /// The step that was asked for, from 0.
        step: usize,
        /// How many there are.
        steps: usize,
    },

    /// A step that does not follow the one the state has seen last.
    #[error("step {step} was asked of a region whose next step is {next}")]
    OutOfOrder {
        /// The step that was asked for.
        step: usize,
        /// The step that must come next.
        next: usize,
    },

    /// Tensors of one step differ in shape.
    #[error("the {what} has shape {found:?}, but the sample has {sample:?}")]
    Shape {
        /// Which tensor: prediction, noise or history.
        what: &'static str,
        /// Its shape.
        found: [usize; 3],
        /// The shape of the sample.
        sample: [usize; 3],
    },

    /// A step adds noise and got none.
    #[error("step {step} adds noise, but none was given; ask `wants_noise` first")]
    NoNoise {
        /// The step, from 0.
        step: usize,
    },

    /// A token range that the region does not have.
    #[error("tokens {start}..{end} are outside of a region of {tokens}")]
    Region {
        /// The first token of the range.
        start: usize,
        /// The end of the range.
        end: usize,
        /// How many tokens the region has.
        tokens: usize,
    },

    /// Regions that have not taken the same steps.
    #[error("cannot join regions whose next steps differ: {first:?} and {other:?}")]
    Join {
        /// The next step of the first region.
        first: Option<usize>,
        /// The next step of the one that differs.
        other: Option<usize>,
    },

    /// A side that does not fill whole tokens.
    #[error(
        "{what} is {got}, but it must be a multiple of {step} (VAE factor x patch); the nearest is {nearest}"
    )]
    Size {
        /// Height or width.
        what: &'static str,
        /// What was asked for.
        got: usize,
        /// What it must divide by.
        step: usize,
        /// The nearest legal one.
        nearest: usize,
    },

    /// A number of frames that does not fill whole groups of the VAE.
    #[error("frames is {frames}, but it must be {rule}; the nearest is {nearest}")]
    Frames {
        /// What was asked for.
        frames: usize,
        /// What it must be.
        rule: String,
        /// The nearest legal ones.
        nearest: String,
    },

    /// Latent frames that do not fill whole tokens.
    #[error(
        "{frames} frames are {latent_frames} latent frames, which a patch of {patch} frames does not divide"
    )]
    FramePatch {
        /// What was asked for.
        frames: usize,
        /// What they become.
        latent_frames: usize,
        /// Latent frames of a token.
        patch: usize,
    },

    /// Latents that cannot be cut into tokens.
    #[error("{latents:?} latents cannot be cut into the model's patches of {patch:?}")]
    Patch {
        /// Frames, rows and columns.
        latents: [usize; 3],
        /// Those of a patch.
        patch: [usize; 3],
    },

    /// A reference that is not smaller than its target by whole factors.
    #[error("the reference has {reference:?} latents, but {want} {target:?} of the target")]
    Reference {
        /// Frames, rows and columns of the reference.
        reference: [usize; 3],
        /// What must hold.
        want: &'static str,
        /// Frames, rows and columns of the target.
        target: [usize; 3],
    },

    /// Guidance that has nothing to push away from.
    #[error("guidance above 1 needs the text of the unconditional prediction")]
    NoUnconditional,

    /// A network that says nothing about a track.
    #[error("the network predicts nothing for the {track}, which is to be generated")]
    NoPrediction {
        /// Which track.
        track: &'static str,
    },
}
