// Radicals that look like a character, in the order of Unicode's CJK Radicals Supplement, and those
// characters (Unicode Character Database, EquivalentUnifiedIdeograph). The Kangxi radicals need no
// table: their compatibility decompositions say the same.
const radicals = "⺁⺟⺠⻁⻄⻅⻆⻉⻋⻓⻔⻘⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻪⻬⻮⻰⻳";
const characters = "厂母民虎西见角贝车长门青页风飞食马骨鬼鱼鸟卤麦黄黾齐齿龙龟";

const characterOf = new Map([...radicals].map((radical, i) => [radical, characters[i] ?? radical]));

/**
 * Replaces radicals by the characters that were meant. Browsers print some Chinese characters into a
 * PDF as radicals, because a font draws both with one glyph; a search or a model would miss them.
 */
export function withoutRadicals(text: string): string {
  return text.replaceAll(/[\u2E80-\u2FD5]/g, (radical) => characterOf.get(radical) ?? radical.normalize("NFKC"));
}
