import type { ReplyLanguage, TextPart, ThinkingPart } from "@larkline/protocol";
import { oneLine, textsOf } from "./texts/index.ts";

const maxLinks = 10;
const maxTitleChars = 80;

/** What an answer cites, as one line of links for people; empty where it cites nothing that its text does not link to. */
export function sourcesLine(
  { parts, text }: { parts: readonly (TextPart | ThinkingPart)[]; text: string },
  language: ReplyLanguage,
): string {
  const links = new Map<string, string>();
  for (const { providerMetadata } of parts) {
    const { citations = "[]" } = providerMetadata ?? {};
    // By the adapter of the vendor.
    for (const { url, title } of JSON.parse(citations) as { url: string; title: string }[]) {
      const address = addressOf(url);
      if (address === undefined || text.includes(url) || links.has(address)) continue;
      links.set(address, `[${titleOf(title, address)}](${address})`);
    }
  }
  const shown = [...links.values()].slice(0, maxLinks);
  return shown.length === 0 ? "" : `${textsOf(language).notices.sources}${shown.join(" · ")}`;
}

/** An address of the web that cannot end a link of Markdown. */
function addressOf(url: string): string | undefined {
  const parsed = URL.parse(url);
  if (parsed === null || !["https:", "http:"].includes(parsed.protocol)) return undefined;
  return parsed.href.replaceAll("(", "%28").replaceAll(")", "%29");
}

function titleOf(title: string, address: string): string {
  return oneLine(title.replaceAll(/[\s[\]()<>`*_\\]+/g, " "), maxTitleChars).trim() || new URL(address).hostname;
}
