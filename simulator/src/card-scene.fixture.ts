import { patientClock } from "@larkline/testkit";
import { startFeishuSimulator, type FeishuSimulator, type SimulatorOptions } from "./index.ts";
import { connectTestClient, type TestAnswer, type TestClient } from "./open-api.fixture.ts";

export const cardApp = { appId: "cli_0123456789abcdef", appSecret: "secret" };
const otherApp = { appId: "cli_fedcba9876543210", appSecret: "other" };
const cards = "/open-apis/cardkit/v1/cards";

/** A group with a person and two bots; the first one works with cards. */
export interface CardScene {
  simulator: FeishuSimulator;
  client: TestClient;
  other: TestClient;
  person: string;
  group: string;
  /** Creates an entity; the result is its id. */
  create(card: object): Promise<string>;
  /** Any call under the card's path; adds the next sequence unless the body has one. */
  operate(cardId: string, operation: Operation): Promise<TestAnswer>;
  /** Types the text into an element. */
  type(cardId: string, elementId: string, content: string): Promise<TestAnswer>;
  /** A person writes; the result is the message's id. */
  ask(): Promise<string>;
  reply(messageId: string, content: unknown): Promise<TestAnswer>;
  /** Sends the card JSON as a message and returns its id. */
  post(card: object): Promise<string>;
}

export interface Operation {
  method: string;
  /** Below the card: `settings`, `elements/md`; empty for the card itself. */
  path: string;
  body: Record<string, unknown>;
}

export async function startCardScene(options: Partial<SimulatorOptions> = {}): Promise<CardScene> {
  const simulator = await startFeishuSimulator({
    apps: [cardApp, otherApp],
    retryDelaysMs: [],
    limits: "off",
    clock: patientClock,
    ...options,
  });
  const { openId: person } = simulator.addUser({ name: "Ann" });
  const { chatId: group } = simulator.addChat({
    type: "group",
    members: [person, cardApp.appId, otherApp.appId],
  });
  const client = await connectTestClient(simulator.url, cardApp);
  const operate = (cardId: string, { method, path, body }: Operation): Promise<TestAnswer> => {
    const sequence = (simulator.card(cardId)?.sequence ?? 0) + 1;
    const below = path === "" ? "" : `/${path}`;
    return client.call(method, `${cards}/${cardId}${below}`, { sequence, ...body });
  };
  const reply = (messageId: string, content: unknown): Promise<TestAnswer> =>
    client.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, {
      msg_type: "interactive",
      content: JSON.stringify(content),
    });
  const ask = async (): Promise<string> =>
    (await simulator.sendMessage({ appId: cardApp.appId, chatId: group, from: person, text: "hi" }))
      .messageId;
  return {
    simulator,
    client,
    other: await connectTestClient(simulator.url, otherApp),
    person,
    group,
    create: async (card) =>
      String(
        (await client.call("POST", cards, { type: "card_json", data: JSON.stringify(card) })).data
          .card_id,
      ),
    operate,
    type: (cardId, elementId, content) =>
      operate(cardId, { method: "PUT", path: `elements/${elementId}/content`, body: { content } }),
    ask,
    reply,
    async post(card) {
      const sent = await reply(await ask(), card);
      if (sent.code !== 0) throw new Error(JSON.stringify(sent.body));
      return String(sent.data.message_id);
    },
  };
}

/** The content of a message that shows the entity. */
export function reference(cardId: string): object {
  return { type: "card", data: { card_id: cardId } };
}

/** A 2.0 card that types. */
export function streamingCard(...elements: object[]): object {
  return { schema: "2.0", config: { streaming_mode: true }, body: { elements } };
}

/** A 2.0 card that does not. */
export function stillCard(...elements: object[]): object {
  return { schema: "2.0", body: { elements } };
}

export function markdown(elementId: string, content = ""): object {
  return { tag: "markdown", element_id: elementId, content };
}

export function button(elementId: string, more: object = {}): object {
  return {
    tag: "button",
    element_id: elementId,
    text: { tag: "plain_text", content: elementId.toUpperCase() },
    behaviors: [{ type: "callback", value: { pressed: elementId } }],
    ...more,
  };
}
