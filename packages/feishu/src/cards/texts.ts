import type { ReplyLanguage } from "@larkline/protocol";
import type { CardTexts } from "./card-texts.ts";
import { en } from "./texts-en.ts";
import { zh } from "./texts-zh.ts";

export const cardTexts: Record<ReplyLanguage, CardTexts> = { zh, en };
