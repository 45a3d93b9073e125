import type { Approval } from "@larkline/protocol/approval";
import { askTitle, buttons, openFacts, question } from "./approval-card.ts";
import { inLanguages, type CardElement, type Speech } from "./card.ts";

// What the requester of a call alone decides stands on the card of the reply, below the answer, with its buttons.

/** What a person is asked on the card of a reply, for the root of that card; `at` is its place among others there. */
export function askElements(approval: Approval, speech: Speech, at: number): CardElement[] {
  return inLanguages(speech, (language) => {
    const shown = { approval, state: "pending", decisions: [], kind: "call" } as const;
    const [row] = buttons(approval, language, false);
    return [
      { tag: "hr" },
      ...askTitle(approval, language),
      ...question(shown, language),
      ...openFacts(approval, language),
      { ...inReply(row ?? {}, at), element_id: `${askRowId}${at}` },
    ];
  });
}

const askRowId = "ask_";

/**
 * The card of a reply with the form for the reason of a rejection below the buttons of one approval, in place of the
 * button that opens it; undefined when it asks nothing about that approval.
 */
export function withReasonForm(card: CardElement, approval: Approval): CardElement | undefined {
  const { body } = card;
  if (
    typeof body !== "object" ||
    body === null ||
    !("elements" in body) ||
    !Array.isArray(body.elements)
  ) {
    return;
  }
  const elements = body.elements as CardElement[]; // drawn by renderCard
  const place = elements.findIndex(
    (element) =>
      String(element["element_id"]).startsWith(askRowId) &&
      JSON.stringify(element).includes(`"__approval__":${JSON.stringify(approval.id)}`),
  );
  const id = elements[place]?.["element_id"];
  if (typeof id !== "string") return undefined;
  const at = Number(id.slice(askRowId.length));
  const { language, bilingual } = approval;
  const [row, form] = inLanguages({ language, bilingual }, (each) =>
    buttons(approval, each, true),
  ).map((each) => inReply(each, at));
  const open = [{ ...row, element_id: id }, form ?? {}];
  return { ...card, body: { ...body, elements: elements.toSpliced(place, 1, ...open) } };
}

/** The ids of the rows of buttons on a card of a reply. */
export function askRowsOf(card: CardElement): string[] {
  const ids = [...JSON.stringify(card).matchAll(/"element_id":"(ask_\d+)"/g)];
  return ids.flatMap(([, id]) => id ?? []);
}

/** Buttons whose clicks are answered without a card: that of the reply has one writer. Ids are unique in a card. */
function inReply(element: CardElement, at: number): CardElement {
  return JSON.parse(JSON.stringify(element), (key, value: unknown) => {
    if (key === "element_id" && typeof value === "string") return `${value}_${at}`;
    const isValue = typeof value === "object" && value !== null && "__approval__" in value;
    return isValue ? { ...value, in_reply: true } : value;
  }) as CardElement; // the same with more in some of its parts
}
