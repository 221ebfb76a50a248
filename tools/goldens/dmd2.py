"""One step of DMD2 on a network of a few matrices -> goldens/dmd2.safetensors.

The step is written out here as the paper and FastVideo's `DMD2Method` have it: student, frozen teacher,
critic; rollout from noise; scores of the student's sample at a level per sample; a normaliser per
sample over the tokens that count. Two cases: `free`, where every token is generated, and `fixed`, where
the first frame of the first sample is given.
"""

import tiny
import torch

BATCH, FRAMES, PLACE, CHANNELS, WORDS, TEXT, WIDTH = 2, 3, 2, 3, 3, 4, 5
TOKENS = FRAMES * PLACE
TIMESTEPS = [1000.0, 700.0, 300.0]
GUIDANCE = 2.5
SHAPES = {
    "text.weight": (WIDTH, TEXT),
    "text.bias": (WIDTH,),
    "time": (WIDTH,),
    "embed.weight": (WIDTH, CHANNELS),
    "embed.bias": (WIDTH,),
    "blocks.0.mix.weight": (WIDTH, WIDTH),
    "blocks.0.mix.bias": (WIDTH,),
    "head.weight": (CHANNELS, WIDTH),
    "head.bias": (CHANNELS,),
}


def network(seed):
    """Random parameters by name, all of them asking for gradients."""
    made = {}
    for index, (name, shape) in enumerate(SHAPES.items()):
        scale = 0.7 if len(shape) == 1 else 1.2 / shape[1] ** 0.5
        made[name] = tiny.normal(shape, seed + index, scale).requires_grad_()
    return made


def predict(weights, noisy, level, text):
    """The velocity. `noisy` is [B, N, C], `level` [B, N, 1], `text` [B, L, D]."""
    about = text.mean(1, keepdim=True) @ weights["text.weight"].T + weights["text.bias"]
    hidden = noisy @ weights["embed.weight"].T + weights["embed.bias"] + level * weights["time"]
    mixed = hidden @ weights["blocks.0.mix.weight"].T + weights["blocks.0.mix.bias"] + about
    # Tokens see each other, so that a wrong token shows everywhere.
    hidden = hidden + torch.nn.functional.silu(mixed) + hidden.mean(1, keepdim=True)
    return hidden @ weights["head.weight"].T + weights["head.bias"]


class Step:
    """One step with all choices made."""

    def __init__(self, given, exit_index):
        self.given = given[:, :, None]  # [B, N, 1], True where a token is fixed
        self.exit = exit_index
        self.student, self.teacher, self.critic = network(100), network(200), network(300)
        self.text = tiny.normal((BATCH, WORDS, TEXT), 1)
        self.negative = tiny.normal((1, WORDS, TEXT), 2)
        self.clean = tiny.normal((BATCH, TOKENS, CHANNELS), 3)
        self.rollout = [tiny.normal((BATCH, TOKENS, CHANNELS), 10 + i) for i in range(exit_index + 1)]
        self.score_noise = tiny.normal((BATCH, TOKENS, CHANNELS), 20)
        self.critic_noise = tiny.normal((BATCH, TOKENS, CHANNELS), 21)
        self.score_level = torch.tensor([0.35, 0.8])
        self.critic_level = torch.tensor([0.6, 0.15])

    def keep(self, tokens):
        """Fixed tokens are the clean ones."""
        return torch.where(self.given, self.clean, tokens)

    def levels(self, level):
        """[B] or a number to [B, N, 1], 0 where a token is fixed."""
        level = torch.as_tensor(level).reshape(-1, 1, 1).expand(BATCH, TOKENS, 1)
        return torch.where(self.given, torch.zeros(()), level)

    def noised(self, clean, noise, level):
        """The forward process, fixed tokens kept."""
        level = self.levels(level)
        return self.keep((1 - level) * clean + level * noise)

    def clean_of(self, weights, noisy, level, text):
        """The clean tokens that a network predicts."""
        level = self.levels(level)
        return self.keep(noisy - level * predict(weights, noisy, level, text))

    def mean(self, each):
        """[B, N, C] to [B]: the mean over channels and the tokens that count."""
        free = (~self.given).float()
        per_token = each.mean(2, keepdim=True) * free
        return per_token.sum((1, 2)) / free.sum((1, 2))

    def start(self):
        """What the student sees at its exit: simulated from noise."""
        tokens = self.rollout[0]
        with torch.no_grad():
            for index in range(self.exit):
                level, following = TIMESTEPS[index] / 1000, TIMESTEPS[index + 1] / 1000
                clean = self.clean_of(self.student, self.keep(tokens), level, self.text)
                tokens = (1 - following) * clean + following * self.rollout[index + 1]
        return self.keep(tokens)

    def run(self):
        """Losses and gradients."""
        sample = self.clean_of(self.student, self.start(), TIMESTEPS[self.exit] / 1000, self.text)
        plain = sample.detach()
        with torch.no_grad():
            noisy = self.noised(plain, self.score_noise, self.score_level)
            fake = self.clean_of(self.critic, noisy, self.score_level, self.text)
            real = self.clean_of(self.teacher, noisy, self.score_level, self.text)
            negative = self.negative.expand(BATCH, -1, -1)
            unreal = self.clean_of(self.teacher, noisy, self.score_level, negative)
            real = unreal + GUIDANCE * (real - unreal)
            distance = self.mean((plain - real).abs()).reshape(BATCH, 1, 1)
            pull = (fake - real) / distance
        student_loss = 0.5 * self.mean((sample - (plain - pull)) ** 2)
        student_loss.mean().backward()

        noisy = self.noised(plain, self.critic_noise, self.critic_level)
        said = predict(self.critic, noisy, self.levels(self.critic_level), self.text)
        critic_loss = self.mean((said - (self.critic_noise - plain)) ** 2)
        for parameter in self.critic.values():
            parameter.grad = None
        critic_loss.mean().backward()
        assert all(parameter.grad is None for parameter in self.teacher.values())
        return {"student_loss": student_loss, "critic_loss": critic_loss, "sample": plain}


def main():
    """Write goldens/dmd2.safetensors."""
    tensors = {}
    given = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    fixed = given.clone()
    fixed[0, :PLACE] = True
    for case, mask, exit_index in [("free", given, 2), ("fixed", fixed, 1)]:
        step = Step(mask, exit_index)
        found = step.run()
        tensors |= tiny.prefixed(case, found)
        for role in ["student", "critic"]:
            gradients = {name: value.grad for name, value in getattr(step, role).items()}
            tensors |= tiny.prefixed(f"{case}.{role}.gradients", gradients)
    for role in ["student", "teacher", "critic"]:
        tensors |= tiny.prefixed(role, getattr(step, role))
    shared = {name: getattr(step, name) for name in ["text", "negative", "clean"]}
    shared |= {name: getattr(step, name) for name in ["score_noise", "critic_noise"]}
    shared |= {name: getattr(step, name) for name in ["score_level", "critic_level"]}
    long = Step(given, 2)
    shared |= {f"rollout.{index}": noise for index, noise in enumerate(long.rollout)}
    tensors |= shared
    config = {"timesteps": TIMESTEPS, "guidance": GUIDANCE, "grid": [FRAMES, 1, PLACE]}
    tiny.write(tiny.GOLDENS / "dmd2.safetensors", tensors, config)


if __name__ == "__main__":
    main()
