/** Tables in card markdown: a row followed by a row of dashes, outside of code. */
export function tableCount(markdown: string): number {
  if (!markdown.includes("|")) return 0;
  const lines = linesOutsideFences(markdown);
  return lines.filter((line, index) => isDelimiterRow(line) && (lines[index - 1] ?? "").includes("|")).length;
}

function isDelimiterRow(line: string): boolean {
  return line.includes("|") && line.includes("-") && /^[\s|:-]+$/.test(line);
}

/** Open ids in `<at id=ou_…>` and `<person id='ou_…'>` tags outside of code; `all` names nobody. */
export function mentionedIds(markdown: string): string[] {
  if (!markdown.includes("<")) return [];
  const tags = outsideCode(markdown).matchAll(/<(?:at|person)\s+ids?\s*=\s*["']?([^"'>\s]+)/g);
  return [...tags].flatMap(([, ids = ""]) => ids.split(",")).filter((id) => id !== "" && id !== "all");
}

/** Image keys of `![…](…)` outside of code. */
export function imageKeys(markdown: string): string[] {
  if (!markdown.includes("![")) return [];
  return [...outsideCode(markdown).matchAll(/!\[[^\]\n]*\]\(([^)\s]+)/g)].map(([, key = ""]) => key);
}

function outsideCode(markdown: string): string {
  return linesOutsideFences(markdown)
    .join("\n")
    .replaceAll(/`[^`\n]*`/g, "");
}

/** The lines outside of code fences; a fence that is still open reaches to the end. Code counts as an empty line. */
function linesOutsideFences(markdown: string): string[] {
  let fence: string | undefined;
  return markdown.split("\n").map((line) => {
    const mark = /^\s*(`{3,}|~{3,})/.exec(line)?.[1];
    const closes = mark !== undefined && fence !== undefined && mark.startsWith(fence);
    const inside = fence !== undefined;
    if (closes) fence = undefined;
    else if (mark !== undefined && fence === undefined) fence = mark;
    return inside || mark !== undefined ? "" : line;
  });
}
