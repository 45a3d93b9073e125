import { refusedByCardKit, refusing } from "./card-problem.ts";
import { isTooLarge, type CardEntity } from "./card-store.ts";
import { findElement, withValueAt } from "./card-tree.ts";
import { checkCardTexts } from "./card-validator.ts";
import { parameterError } from "./cardkit-call.ts";
import type { ApiCallContext, Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const maximumLength = 100_000;
const streamable = new Set(["markdown", "plain_text"]);

/** Sets the full text of a streamed element (streaming text page): only while the card streams. */
export function applyContent(platform: Platform, entity: CardEntity, call: ApiCallContext): void {
  const { content } = call.body;
  if (typeof content !== "string" || content.length === 0 || content.length > maximumLength) {
    throw parameterError(`content must have 1 to ${maximumLength} characters`);
  }
  checkStreaming(platform, entity);
  const elementId = call.params.element_id ?? "";
  const target = findElement(entity.json, elementId);
  if (target === undefined) throw new PlatformError(300313, `element ${elementId} not found`);
  if (!streamable.has(target.tag)) throw new PlatformError(300310, `element ${elementId} is not a text element`);
  const shown = typeof target.node.content === "string" ? target.node.content : "";
  const bytes = entity.bytes + jsonBytes(content) - jsonBytes(shown);
  if (isTooLarge(bytes)) throw new PlatformError(200860, "card content exceeds the limit of 30 KB");
  const json = withValueAt(entity.json, [...target.path, "content"], content);
  refusing(refusedByCardKit, () => checkCardTexts(json, platform.cards.facts));
  entity.frames.add({ elementId, text: content, shown, at: platform.now() });
  platform.cards.change(entity, json, { enable: false, bytes });
}

/** The first late text is told that streaming timed out; from then on streaming is off. */
function checkStreaming(platform: Platform, entity: CardEntity): void {
  if (entity.streamingSince === undefined) throw new PlatformError(300309, "streaming mode is closed");
  if (platform.cards.isStreaming(entity)) return;
  const json = withValueAt(entity.json, ["config", "streaming_mode"], false);
  platform.cards.change(entity, json, { enable: true });
  throw new PlatformError(200850, "card streaming timeout");
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text), "utf8");
}
