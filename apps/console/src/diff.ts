import { html, type Html } from "./html.ts";

/** One line of a comparison. `gap`: lines that are the same on both sides, and not shown. */
export interface DiffLine {
  kind: "same" | "removed" | "added" | "gap";
  text: string;
}

const same = (text: string): DiffLine => ({ kind: "same", text });
const removed = (text: string): DiffLine => ({ kind: "removed", text });
const added = (text: string): DiffLine => ({ kind: "added", text });

/** Lines around a difference that are shown. */
const context = 2;
/** Steps of one comparison; longer texts are shown as replaced. */
const maxSteps = 250_000;

/** What is removed and added between two lists of lines, with a little of what surrounds it; empty where they are equal. */
export function diffOf(before: readonly string[], after: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) {
    start += 1;
  }
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const [old, fresh] = [
    before.slice(start, before.length - end),
    after.slice(start, after.length - end),
  ];
  if (old.length === 0 && fresh.length === 0) return [];
  return withoutFar([
    ...before.slice(0, start).map(same),
    ...changedLines(old, fresh),
    ...before.slice(before.length - end).map(same),
  ]);
}

/** By the longest common subsequence. */
function changedLines(old: readonly string[], fresh: readonly string[]): DiffLine[] {
  if (old.length * fresh.length > maxSteps) return [...old.map(removed), ...fresh.map(added)];
  const width = fresh.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number): number => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = fresh.length - 1; column >= 0; column -= 1) {
      const isSame = old[row] === fresh[column];
      common[row * width + column] = isSame
        ? at(row + 1, column + 1) + 1
        : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < old.length || column < fresh.length) {
    const [text, other] = [old[row], fresh[column]];
    if (text !== undefined && text === other) {
      lines.push({ kind: "same", text });
      row += 1;
      column += 1;
    } else if (
      text !== undefined &&
      (other === undefined || at(row + 1, column) >= at(row, column + 1))
    ) {
      lines.push(removed(text));
      row += 1;
    } else {
      lines.push(added(other ?? ""));
      column += 1;
    }
  }
  return lines;
}

function withoutFar(lines: readonly DiffLine[]): DiffLine[] {
  const isNear = lines.map((_line, at) =>
    lines.slice(Math.max(0, at - context), at + context + 1).some(({ kind }) => kind !== "same"),
  );
  return lines.flatMap((line, at): DiffLine[] => {
    if (isNear[at] === true) return [line];
    return at > 0 && isNear[at - 1] === false ? [] : [{ kind: "gap", text: "…" }];
  });
}

const signs = { same: "  ", removed: "− ", added: "+ ", gap: "" };
const elements = {
  same: (line: string) => html`${line}`,
  gap: (line: string) => html`${line}`,
  removed: (line: string) => html`<del>${line}</del>`,
  added: (line: string) => html`<ins>${line}</ins>`,
};

/** A comparison as people read it: signs and colours say what is removed and added. */
export function diffBlock(lines: readonly DiffLine[]): Html {
  return html`<pre class="diff">
${lines.map(({ kind, text }) => elements[kind](`${signs[kind]}${text}\n`))}</pre>`;
}
