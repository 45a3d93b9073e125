const previewLength = 100;

/**
 * The short form of a tool's result: strings as they are, everything else as JSON; more than 100
 * characters become the first 100 and `...`. Characters are code points, so none is cut in half.
 */
export function previewOf(value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "null");
  // 200 UTF-16 units hold 100 code points at least; the rest need not be split up.
  const characters = Array.from(text.slice(0, 2 * previewLength + 2));
  return characters.length > previewLength ? `${characters.slice(0, previewLength).join("")}...` : text;
}

/** Text of models and tools without control characters: it must not steer the terminal. */
export function printable(text: string): string {
  return [...text].filter((character) => isPrintable(character.codePointAt(0) ?? 0)).join("");
}

function isPrintable(code: number): boolean {
  if (code === 0x0a || code === 0x09) return true;
  return code >= 0x20 && (code < 0x7f || code > 0x9f);
}
