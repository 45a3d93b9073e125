/** Characters of a call's input that are looked at, some of them twice; larger inputs are never run. */
const maxCharacters = 500_000;

/** Whether the value is what JSON calls an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

/** What a value says by itself, and the values inside it. */
function read(value: unknown): { texts: string[]; inner: unknown[] } {
  if (isText(value)) return { texts: [value], inner: [] };
  // A command may come as a list of its words.
  if (Array.isArray(value)) return { texts: value.length > 1 ? [value.filter(isText).join(" ")] : [], inner: value };
  if (!isObject(value)) return { texts: [], inner: [] };
  const wanted = Object.entries(value).filter(([, inner]) => inner !== null && inner !== false);
  return { texts: wanted.map(([key]) => key), inner: wanted.map(([, inner]) => inner) };
}

/**
 * All texts of a call's input, at any depth: strings, lists of strings as one text, and names of
 * fields that are not switched off. Bounded, whatever the input.
 */
export function* textsIn(input: unknown): Generator<string> {
  const waiting: unknown[] = [input];
  let left = maxCharacters;
  while (waiting.length > 0 && left > 0) {
    const { texts, inner } = read(waiting.pop());
    for (const text of texts) {
      yield text.slice(0, left);
      left -= text.length + 1;
      if (left <= 0) return;
    }
    for (const value of inner) waiting.push(value);
  }
}
