import { fileURLToPath } from "node:url";
import { getDocument, PasswordException, VerbosityLevel } from "pdfjs-dist/legacy/build/pdf.mjs";
import { type Draft, DraftFull, passwordNeeded, Refusal } from "./draft.ts";

type PdfDocument = Awaited<ReturnType<typeof getDocument>["promise"]>;
type PdfPage = Awaited<ReturnType<PdfDocument["getPage"]>>;

const library = fileURLToPath(new URL("./", import.meta.resolve("pdfjs-dist/package.json")));

/** Nothing is drawn, fetched or run: characters are all that we want. */
const settings = {
  // Chinese, Japanese and Korean fonts that are not embedded name their characters by these maps.
  cMapUrl: `${library}cmaps/`,
  cMapPacked: true,
  standardFontDataUrl: `${library}standard_fonts/`,
  disableFontFace: true,
  useSystemFonts: false,
  useWorkerFetch: false,
  useWasm: false,
  enableXfa: false,
  isOffscreenCanvasSupported: false,
  isImageDecoderSupported: false,
  maxImageSize: 0,
  stopAtErrors: false,
  verbosity: VerbosityLevel.ERRORS,
};

async function open(task: ReturnType<typeof getDocument>): Promise<PdfDocument> {
  try {
    return await task.promise;
  } catch (error) {
    if (error instanceof PasswordException) throw passwordNeeded();
    throw new Refusal("failed", "The PDF is damaged or cut off.");
  }
}

/** Puts the text of a page into the draft, under its heading; true when there was any. */
async function readPage(page: PdfPage, heading: string, draft: Draft): Promise<boolean> {
  let found = false;
  const chunks: AsyncIterable<Awaited<ReturnType<PdfPage["getTextContent"]>>> =
    page.streamTextContent();
  for await (const { items } of chunks) {
    for (const item of items) {
      if (!("str" in item)) continue;
      if (!found && item.str.trim() !== "") {
        draft.add(heading);
        found = true;
      }
      draft.add(withoutRadicals(item.hasEOL ? `${item.str}\n` : item.str));
    }
  }
  return found;
}

async function readPages(
  document: PdfDocument,
  draft: Draft,
): Promise<{ found: boolean; unreadable: number }> {
  let found = false;
  let unreadable = 0;
  for (let number = 1; number <= document.numPages; number += 1) {
    const heading = document.numPages > 1 ? `\n[Page ${number}]\n` : "";
    draft.checkTime();
    try {
      const page = await document.getPage(number);
      const hasText = await readPage(page, heading, draft);
      found ||= hasText;
      page.cleanup();
    } catch (error) {
      if (error instanceof DraftFull) throw error;
      unreadable += 1;
      draft.add(`${heading}(this page cannot be read)\n`);
    }
  }
  return { found, unreadable };
}

/** Text of a PDF, page by page. Refuses scans: they hold no text. */
export async function readPdf(bytes: Uint8Array, draft: Draft): Promise<void> {
  // A copy: the library takes the buffer away from its owner.
  const task = getDocument({ ...settings, data: Uint8Array.from(bytes) });
  try {
    const document = await open(task);
    draft.pages = document.numPages;
    const { found, unreadable } = await readPages(document, draft);
    if (found) return;
    if (unreadable > 0) {
      throw new Refusal("failed", "The PDF is damaged: none of its pages can be read.");
    }
    throw new Refusal(
      "unsupported",
      "The PDF holds no text, only pictures (perhaps scanned pages).",
    );
  } finally {
    await task.destroy();
  }
}

/* ---- Chinese characters ---- */

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
  return text.replaceAll(
    /[\u2E80-\u2FD5]/g,
    (radical) => characterOf.get(radical) ?? radical.normalize("NFKC"),
  );
}
