import { hideSecrets } from "@larkline/protocol";
import { isObject } from "./argument-texts.ts";

const mask = "***";
const cutMark = "…";

const maxDepth = 12;
const maxCharacters = 20_000;
const maxTextCharacters = 4_000;

/** Words in names of fields that hold credentials. */
const credentialWords: ReadonlySet<string> = new Set(
  "password passwd passphrase pwd secret secrets token tokens credential credentials authorization cookie apikey".split(
    " ",
  ),
);
const credentialPairs: ReadonlySet<string> = new Set(["api key", "access key", "private key", "secret key"]);

/** `apiKey`, `API_KEY` and `api-key` as words. */
function wordsOf(name: string): string[] {
  return name
    .slice(0, 200)
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}

function namesCredential(name: string): boolean {
  const words = wordsOf(name);
  return words.some(
    (word, index) => credentialWords.has(word) || credentialPairs.has(`${word} ${words[index + 1] ?? ""}`),
  );
}

/** Copies a value with everything hidden that people must not see, within one budget of characters. */
class Masker {
  readonly #secrets: ReadonlySet<string>;
  #left = maxCharacters;

  constructor(secrets: readonly string[]) {
    this.#secrets = new Set(secrets.map((name) => name.toLowerCase()));
  }

  object(value: Readonly<Record<string, unknown>>, depth: number): Record<string, unknown> {
    return Object.fromEntries(
      this.#within(Object.entries(value), ([name, inner]) => {
        const shown = this.#text(name);
        const secret = this.#secrets.has(name.toLowerCase());
        return [shown, secret ? mask : this.#value(inner, depth, namesCredential(name))];
      }),
    );
  }

  /** As many as the budget allows; then nothing more. */
  #within<T, R>(items: readonly T[], copy: (item: T) => R): R[] {
    const copies: R[] = [];
    for (const item of items) {
      if (this.#left <= 0) break;
      this.#left -= 4;
      copies.push(copy(item));
    }
    return copies;
  }

  #value(value: unknown, depth: number, isCredential: boolean): unknown {
    if (typeof value === "string") return isCredential && value !== "" ? mask : this.#text(value);
    if (typeof value === "number") return isCredential && value > 99_999 ? mask : value;
    if (typeof value !== "object" || value === null) return value;
    if (depth >= maxDepth) return cutMark;
    if (Array.isArray(value)) return this.#within(value, (inner) => this.#value(inner, depth + 1, isCredential));
    return isObject(value) ? this.#fields(value, depth + 1, isCredential) : undefined;
  }

  /** Everything below a credential is one. */
  #fields(value: Record<string, unknown>, depth: number, isCredential: boolean): Record<string, unknown> {
    if (!isCredential) return this.object(value, depth);
    return Object.fromEntries(
      this.#within(Object.entries(value), ([name, inner]) => [this.#text(name), this.#value(inner, depth, true)]),
    );
  }

  #text(text: string): string {
    const room = Math.max(0, Math.min(maxTextCharacters, this.#left));
    const cut = text.length > room ? `${text.slice(0, room)}${cutMark}` : text;
    this.#left -= cut.length;
    return hideSecrets(cut, mask);
  }
}

/**
 * A call's input as people may see it: values of `secrets` (names of fields, at any depth) and of
 * fields that are called like credentials are hidden, credentials inside texts as well. Bounded in
 * size and depth; what is left out leaves `…`. Linear.
 */
export function maskedArguments(
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): Record<string, unknown> {
  return new Masker(secrets).object(input, 0);
}
