import type { EngineEvent, QueuedMessage, ReplyLanguage, TurnState } from "@larkline/protocol";
import { modelText, modelUnknownText, type ModelFacts } from "./command-text.ts";
import { newTurn } from "./new-turn.ts";
import { languageOfMessage, noticeText } from "./notice.ts";
import { slashCommandIn } from "./slash-command.ts";
import { endDone } from "./turn-ending.ts";
import { after, type Transition } from "./turn-environment.ts";

/** What a session command depends on. */
export interface CommandFacts extends ModelFacts {
  nowMs: number;
  /** Language of the reply; without it that of the person's message. */
  texts?: ReplyLanguage;
}

/** What came of a compaction that a person asked for; undefined when there was nothing to compact. */
export interface CompactionReport {
  tokensBefore: number;
  tokensAfter: number;
  /** False when the older part was dropped because no summary could be made. */
  summarised: boolean;
}

/**
 * The turn of a message that is an order to the session; undefined when it is none. `/new` and
 * `/model` finish at once; `/compact` asks for the compaction (`next.do` is `compact`), after which
 * {@link commandDone} finishes it. Nothing of a command enters the history, so no model ever sees it.
 */
export function commandTurn(head: QueuedMessage, facts: CommandFacts): Transition | undefined {
  const { command } = head.message;
  if (command === undefined) return undefined;
  const turn = newTurn(head, facts.nowMs);
  const reported = slashCommandIn(head.message);
  const records = { history: [], events: reported === undefined ? [] : [reported] };
  switch (command.name) {
    case "new":
      return after(records, { ...finished(turn, notice("newConversation", turn, facts)), context: { keep: 0 } });
    case "model":
      return after(records, chooseModel(turn, command.argument, facts));
    case "compact":
      return { turn, ...records, next: { do: "compact" } };
  }
}

/** Ends the turn of `/compact`. */
export function commandDone(
  turn: TurnState,
  report: CompactionReport | undefined,
  facts: Pick<CommandFacts, "texts">,
): Transition {
  if (report === undefined) return finished(turn, notice("nothingToCompact", turn, facts));
  const values = { before: report.tokensBefore, after: report.tokensAfter };
  return finished(turn, noticeText(report.summarised ? "compacted" : "shortened", languageFor(turn, facts), values));
}

function languageFor({ message }: TurnState, { texts }: Pick<CommandFacts, "texts">): ReplyLanguage {
  return languageOfMessage(message, texts);
}

function notice(
  name: "newConversation" | "nothingToCompact",
  turn: TurnState,
  facts: Pick<CommandFacts, "texts">,
): string {
  return noticeText(name, languageFor(turn, facts));
}

function finished(turn: TurnState, reply: string): Transition {
  const events: EngineEvent[] = [
    { type: "text_delta", text: reply },
    { type: "text", text: reply },
  ];
  return endDone(turn, { history: [], events, reply, reason: "", final: reply });
}

const defaultWords: ReadonlySet<string> = new Set(["default", "默认"]);

function chooseModel(turn: TurnState, argument: string, facts: CommandFacts): Transition {
  const language = languageFor(turn, facts);
  const wanted = argument.trim().toLowerCase();
  if (wanted === "") return finished(turn, modelText(language, facts));
  const { defaultModel } = facts;
  const found = defaultWords.has(wanted) ? defaultModel : modelNamed(wanted, [defaultModel, ...facts.models]);
  if (found === undefined) return finished(turn, modelUnknownText(language, argument.trim(), facts));
  const isDefault = found === defaultModel;
  const reply = noticeText(isDefault ? "modelReset" : "modelChosen", language, { model: found });
  return { ...finished(turn, reply), settings: isDefault ? {} : { model: found } };
}

/** By full name, or by the id alone when only one provider has it. */
function modelNamed(wanted: string, models: readonly string[]): string | undefined {
  const exact = models.find((model) => model.toLowerCase() === wanted);
  if (exact !== undefined) return exact;
  const byId = new Set(models.filter((model) => model.slice(model.indexOf("/") + 1).toLowerCase() === wanted));
  return byId.size === 1 ? [...byId][0] : undefined;
}
