// Formulas as people can read them where none are drawn: cards show TeX as it was written ("Rich text (Markdown)" names
// no formulas), so its commands become the characters that they stand for.

/** Commands of TeX, each with the character after it that it stands for. */
const symbolWords = (
  "alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ " +
  "lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ " +
  "Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω times × cdot · div ÷ pm ± mp ∓ ast ∗ star " +
  "⋆ circ ∘ oplus ⊕ otimes ⊗ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto " +
  "∝ ll ≪ gg ≫ infty ∞ partial ∂ nabla ∇ sum ∑ prod ∏ int ∫ iint ∬ oint ∮ in ∈ notin ∉ ni ∋ subset ⊂ " +
  "subseteq ⊆ supset ⊃ supseteq ⊇ cup ∪ cap ∩ setminus ∖ emptyset ∅ varnothing ∅ forall ∀ exists ∃ neg ¬ " +
  "lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ to → rightarrow → leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow " +
  "⇐ Leftrightarrow ⇔ implies ⇒ iff ⇔ mapsto ↦ uparrow ↑ downarrow ↓ longrightarrow → perp ⊥ parallel ∥ mid " +
  "∣ vert ∣ lvert ∣ rvert ∣ Vert ‖ lVert ‖ rVert ‖ angle ∠ degree ° prime ′ hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ " +
  "langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ ldots … cdots ⋯ dots … vdots ⋮ ddots ⋱ therefore ∴ " +
  "because ∵ checkmark ✓"
).split(" ");

/** By name: the character that a command of TeX stands for, or nothing. */
const symbols: ReadonlyMap<string, string> = new Map([
  ...symbolWords.flatMap((word, at): [string, string][] =>
    at % 2 === 0 ? [[word, symbolWords[at + 1] ?? ""]] : [],
  ),
  ...["quad", "qquad"].map((name): [string, string] => [name, " "]),
  ...["bmod", "pmod"].map((name): [string, string] => [name, " mod "]),
  ..."left right big Big bigl bigr Bigl Bigr bigg Bigg limits nolimits displaystyle textstyle hline nonumber"
    .split(" ")
    .map((name): [string, string] => [name, ""]),
]);

/** Names that are read as they are. */
const names = new Set(
  "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min sup inf det dim ker gcd arg".split(
    " ",
  ),
);
/** Commands whose argument is shown without them. */
const wrappers = new Set(
  "text textbf textit textrm mathrm mathbf mathit mathsf mathtt mathcal mathfrak boldsymbol operatorname mbox boxed underline".split(
    " ",
  ),
);
const doubled = new Map(Object.entries({ R: "ℝ", N: "ℕ", Z: "ℤ", Q: "ℚ", C: "ℂ", P: "ℙ" }));
const fractions = new Set(["frac", "dfrac", "tfrac", "cfrac"]);
/** Marks above a letter. */
const accents = new Map(
  Object.entries({
    bar: "\u0304",
    overline: "\u0304",
    hat: "\u0302",
    tilde: "\u0303",
    dot: "\u0307",
    vec: "\u20D7",
  }),
);
const raised = scriptsOf(
  "0123456789+-=()niaobcdefghjklmprstuvwxyz",
  "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵃᵒᵇᶜᵈᵉᶠᵍʰʲᵏˡᵐᵖʳˢᵗᵘᵛʷˣʸᶻ",
);
const lowered = scriptsOf("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ");

function scriptsOf(plain: string, shown: string): ReadonlyMap<string, string> {
  const characters = [...shown];
  return new Map([...plain].map((character, at) => [character, characters[at] ?? character]));
}

const maxDepth = 8;

/** A formula in one line of text. Unknown commands stay as they were written. */
export function formulaText(tex: string): string {
  return new FormulaReader(tex).all().replaceAll(/\s+/g, " ").trim();
}

/** Reads a formula once, from left to right. */
class FormulaReader {
  readonly #tex: string;
  #at = 0;
  #depth = 0;

  constructor(tex: string) {
    this.#tex = tex;
  }

  all(): string {
    let text = "";
    while (this.#at < this.#tex.length) text += this.#next();
    return text;
  }

  /** The next piece. A brace that closes nothing is shown. */
  #next(): string {
    const character = String.fromCodePoint(this.#tex.codePointAt(this.#at) ?? 0);
    this.#at += character.length;
    switch (character) {
      case "\\":
        return this.#command();
      case "{":
        return this.#group();
      case "^":
        return scripted(this.#argument(), raised, "^");
      case "_":
        return scripted(this.#argument(), lowered, "_");
      case "&":
      case "~":
        return " ";
      case "*":
        return "∗";
      default:
        return character;
    }
  }

  #group(): string {
    let text = "";
    this.#depth += 1;
    while (this.#at < this.#tex.length && this.#tex[this.#at] !== "}") {
      if (this.#depth > maxDepth) text += this.#tex[this.#at++];
      else text += this.#next();
    }
    this.#at += 1;
    this.#depth -= 1;
    return text;
  }

  /** What a command or a script is about: a group, a command or a character. */
  #argument(): string {
    while (this.#tex[this.#at] === " ") this.#at += 1;
    if (this.#at >= this.#tex.length || this.#depth > maxDepth || this.#tex[this.#at] === "}") {
      return "";
    }
    this.#depth += 1;
    const text = this.#next();
    this.#depth -= 1;
    return text;
  }

  #option(): string {
    const [option, text = ""] =
      /^\s*\[([^\]]{0,20})\]/.exec(this.#tex.slice(this.#at, this.#at + 40)) ?? [];
    this.#at += option?.length ?? 0;
    return text;
  }

  #command(): string {
    const [name = ""] = /^[A-Za-z]+/.exec(this.#tex.slice(this.#at, this.#at + 30)) ?? [];
    if (name === "") return this.#mark();
    this.#at += name.length;
    const symbol = symbols.get(name);
    if (symbol !== undefined) return symbol;
    if (names.has(name)) {
      return `${name}${/[A-Za-z0-9\\]/.test(this.#tex[this.#at] ?? "") ? " " : ""}`;
    }
    if (wrappers.has(name)) return this.#argument();
    const accent = accents.get(name);
    if (accent !== undefined) {
      const text = this.#argument();
      return [...text].length === 1 ? `${text}${accent}` : text;
    }
    if (fractions.has(name)) return `${whole(this.#argument())}/${whole(this.#argument())}`;
    return this.#commandWithArguments(name);
  }

  #commandWithArguments(name: string): string {
    switch (name) {
      case "binom":
        return `C(${this.#argument()}, ${this.#argument()})`;
      case "sqrt": {
        const root = this.#option();
        return `${root === "" ? "" : scripted(root, raised, "^")}√${whole(this.#argument())}`;
      }
      case "mathbb": {
        const text = this.#argument();
        return doubled.get(text) ?? text;
      }
      case "begin":
      case "end":
        this.#argument();
        return " ";
      default:
        return `\\${name}`;
    }
  }

  /** A backslash before something else than a letter. */
  #mark(): string {
    const character = this.#tex[this.#at] ?? "";
    this.#at += 1;
    if (character === "\\") return this.#tex.slice(this.#at).trim() === "" ? "" : "; ";
    if (character === "|") return "‖";
    if (character === "!") return "";
    return ",;:> ".includes(character) ? " " : character;
  }
}

/** Raised or lowered where each character can be, else behind the sign. */
function scripted(text: string, scripts: ReadonlyMap<string, string>, sign: string): string {
  if (text === "") return sign;
  const characters = [...text.replaceAll(" ", "")];
  if (characters.every((character) => scripts.has(character))) {
    return characters.map((character) => scripts.get(character)).join("");
  }
  if (text === "′" || text === "∘") return text === "∘" ? "°" : text;
  return characters.length === 1 ? `${sign}${text}` : `${sign}(${text})`;
}

/** In brackets where it would be read as less than it is. */
function whole(text: string): string {
  const trimmed = text.trim();
  return /^(?:[\d.]+|\([^()]*\)|\p{L}[\u0300-\u036f\u20D7²³¹⁰-ₜ]*|[°∞])$/u.test(trimmed)
    ? trimmed
    : `(${trimmed})`;
}

/** Whether what is between two dollar signs is a formula: prices and variables of shells are none. */
export function isFormula(text: string): boolean {
  if (/^\s|\s$|[`|]/.test(text)) return false;
  return (
    /\\[A-Za-z]|[\^_=+<>≤≥×]/.test(text) ||
    /^[A-Za-z]['′]?$|^[A-Za-z]\([A-Za-z, ]{1,20}\)$/.test(text)
  );
}
