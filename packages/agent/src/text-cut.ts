/** At most `maxChars` from the beginning; no emoji or rare Chinese character is split. */
export function textHead(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const splits = /[\uD800-\uDBFF]/.test(text.charAt(maxChars - 1));
  return text.slice(0, splits ? maxChars - 1 : maxChars);
}

/** At most `maxChars` from the end; no emoji or rare Chinese character is split. */
export function textTail(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const start = text.length - maxChars;
  return text.slice(/[\uDC00-\uDFFF]/.test(text.charAt(start)) ? start + 1 : start);
}

/** Two texts with a blank line between them. A longer `second` makes the whole longer, never different. */
export function joinedTexts(first: string, second: string): string {
  if (second.trim() === "") return first;
  return first.trim() === "" ? second : `${first}\n\n${second}`;
}
