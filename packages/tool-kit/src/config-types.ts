// Written by `npm run sdk-types` from the schema of the configuration, for those who install the tool kit alone.

export type ConfigInput = {
  /** By name; the agent `default` answers where nothing else is asked for. */
  agents?: Record<string, {
    /** The system prompt. */
    instructions?: string;
    /** `<provider>/<id>`, a comma separates fallbacks; beats the environment's `MODEL`. */
    model?: string;
    /** Model steps in one turn. */
    maxIterations?: number;
    /** Names of the tools it may use; absent means every tool that a runner offers. */
    tools?: (string)[];
    /** Hosts that its tools may reach unasked after text from outside was read: `docs.example.com`, `*.example.com` for those below, `host:port`, `*` for all. Default: none. */
    egress?: (string)[];
    /** When the bot answers in a group: only when mentioned, always, or never. */
    groups?: "mention" | "all" | "none";
    /** Messages of a group since the last one for the bot that its model reads with the next. Default 0. */
    groupContext?: number;
    /** Models that people may choose with `/model`; absent means none but the agent's own. */
    models?: (string)[];
    /** Ask for thinking; a model without it ignores this. */
    thinking?: boolean;
    /** How hard the model works, if the vendor has such a setting. */
    effort?: "low" | "medium" | "high";
    /** Sampling values go to the vendor unchecked. */
    temperature?: number;
    topP?: number;
    /** Most tokens of one step, thinking included. Default: what the model can write, at most 32,000. */
    maxOutputTokens?: number;
    /** Short answers: 4,096 tokens at most, unless `maxOutputTokens` says otherwise. */
    fast?: boolean;
    /** What goes with its requests, by provider: where both set the same, it wins over that of the provider. */
    extra?: Record<string, {
      /** Fields of the body, such as `service_tier`, or a router's `provider`. */
      body?: Record<string, unknown>;
      /** Such as `anthropic-beta`. No secrets: the key of a server is in the variable of its `keyEnv`. */
      headers?: Record<string, string>;
    }>;
    /** Tools that vendors run, by provider, as their interfaces describe them: web search, code execution. */
    hostedTools?: Record<string, (Record<string, unknown>)[]>;
    /** Its vendor keeps what it answers, so that a run may continue an answer by its id: OpenAI's Responses interface alone. */
    storeResponses?: boolean;
    /** The answer is a JSON object of a schema; people in chats see its `format`, or a list of its fields. */
    output?: {
      name: string;
      schema: Record<string, unknown>;
      /** What people in chats see in place of JSON: `{field}` is the field's value, `{{` and `}}` are braces. */
      format?: string;
    };
    /** A working folder of each conversation, with tools to read, write, list, search and edit text files. Default: no. */
    files?: boolean;
    /** A tool to write a to-do list, which the card shows and ticks off. Default: no. */
    todos?: boolean;
    /** Whose memories an agent keeps over conversations. */
    memory?: {
      /** Whether it keeps memories of people: only where they talk to the bot alone, in groups too, or not. Default `off`. */
      person?: "off" | "direct" | "everywhere";
      /** Whether it keeps memories of chats. Default: no. */
      chat?: boolean;
    };
    /** It may ask people with the tool `ask_person`, and waits for their answer. Default: no. */
    questions?: boolean;
    /** It may do things later and repeatedly, with the tool `schedule`; its person confirms each. Default: no. */
    schedules?: boolean;
    /** In a group, a tool that acts as the person who asks: `ask` asks that person before others see what it reads, `private` answers that person in their own chat, `off` does neither. Default: `ask`. */
    groupReads?: "ask" | "private" | "off";
    /** What happens to a message that comes while the session is busy: it waits, it joins the running turn, it stops the running turn of the same person, or it is refused politely. */
    busy?: "queue" | "steer" | "interrupt" | "reject";
    /** Who shares a conversation in a group: the whole chat (or thread), or each person alone. */
    sessions?: "chat" | "sender";
    /** A card that types, or a plain message when the answer is complete. */
    reply?: "card" | "text";
    /** What a reply's card shows besides the answer; everything is on by default. Model, tokens, cost and trace are folded. */
    card?: {
      thinking?: boolean;
      tools?: boolean;
      model?: boolean;
      tokens?: boolean;
      cost?: boolean;
      seconds?: boolean;
      trace?: boolean;
    };
    /** Language of the texts around the answers; `auto` is the person's: that of their last message with words. */
    language?: "auto" | "zh" | "en";
    /** The same for people who have not written any words yet. Default `zh`. */
    defaultLanguage?: "zh" | "en";
    /** A command of an agent's own: `/name words` becomes the prompt followed by the words. */
    commands?: Record<string, {
      description: string;
      prompt: string;
    }>;
    /** What people read on cards in place of its name: a text, or one in each language. */
    title?: string | {
      zh: string;
      en: string;
    };
    /** Description for other agents, and for people who choose an agent. */
    description?: string;
    /** The agents that it may hand the conversation over to. */
    handoffs?: (string | {
      agent: string;
      /** In which cases, for the model. */
      when?: string;
      /** What the next agent sees: the conversation, or the person's last message and the reason. Default `all`. */
      context?: "all" | "last";
      /** Further arguments of the hand-over: a JSON Schema of type object, whose properties come beside `reason`. */
      input?: Record<string, unknown>;
    })[];
    /** The agents and teams that it may give tasks to, and wait for. */
    helpers?: ({
      /** Who works on the task: an agent, or in its place a team. */
      agent?: string;
      team?: string;
      /** The name of the tool. */
      as: string;
      /** What it is for, for the model; if absent the agent's own description. */
      description?: string;
      /** Its arguments: a JSON Schema of type object. Default: `task`, a text. */
      input?: Record<string, unknown>;
      /** The form of its answers. Default: that of the agent. */
      output?: {
        name: string;
        schema: Record<string, unknown>;
        /** What people in chats see in place of JSON: `{field}` is the field's value, `{{` and `}}` are braces. */
        format?: string;
      };
      /** Most model steps of one task. Default: the agent's `maxIterations`. */
      maxSteps?: number;
      /** How long one task may take. Default 10 minutes. */
      timeoutMs?: number;
    })[];
    /** Whom it answers, by open_id, over HTTP `api:<name>`; with `roles`, either is enough. Default: everybody. */
    people?: (string)[];
    roles?: (string)[];
    /** Ids of the chats that it answers in. Default: all. */
    chats?: (string)[];
  }>;
  /** By name, which is no agent's. */
  teams?: Record<string, {
    /** Names of 2 to 8 agents. */
    members: (string)[];
    /** Who is next: in order, as a model chooses, or whom the speaker hands over to. */
    select: "round_robin" | "model" | "handoff";
    /** Of `select: "model"`. */
    selector?: {
      /** As `model` of an agent. */
      model?: string;
      /** A further prompt. */
      prompt?: string;
      /** Whether one member may speak twice in a row. Default: no. */
      repeat?: boolean;
    };
    /** What ends it. */
    end?: {
      /** Contributions. Default 12. */
      messages?: number;
      /** Words by which a member ends it, outside of quotes. */
      mention?: string;
      /** The members whose words count. Default: all. */
      from?: (string)[];
      /** Tokens, in and out, of all. */
      tokens?: number;
    };
    /** What the answer is: the last contribution, or all. Default `last`. */
    reply?: "last" | "transcript";
    /** As `title` of an agent. */
    title?: string | {
      zh: string;
      en: string;
    };
    /** Description for agents that may hand over to it. */
    description?: string;
  }>;
  /** By name; `default` is the bot of `FEISHU_APP_ID`. */
  bots?: Record<string, {
    /** An app's id, as the developer console shows it. */
    appId?: string;
    /** `feishu`, `lark` or a base URL. Default `feishu`. */
    domain?: string;
    /** Default `websocket`. */
    transport?: "websocket" | "webhook" | "both";
    /** Name of the agent that answers. Default `default`. */
    agent?: string;
    /** Chats in which another agent answers, by chat id. */
    chats?: Record<string, {
      agent: string;
    }>;
    /** Keys of the tenants whose people it answers. Default: everybody who can reach it. */
    tenants?: (string)[];
    /** What this bot does in another way than `feishu` says. */
    feishu?: {
      /** A reaction on every message until it is answered; costs two calls each. Default off. */
      typing?: boolean;
      /** How a person sees that their message waits. Default `reaction`. */
      queueNotice?: "reaction" | "line" | "off";
      /** What a message that came late gets: the question whether to run it, or a line. Default `ask`. */
      lateMessages?: "ask" | "line";
      /** Greet chats that the bot is added to and people who open it. Default on. */
      welcome?: boolean;
      /** What a press on a menu entry of the bot says, by event key. */
      menu?: Record<string, string>;
      /** API calls a month that the app's edition allows (10,000 in the free one). Default: not limited. */
      monthlyCalls?: number;
      /** Cards that one answer may fill; the rest of it is one file. Default 5. */
      maxCards?: number;
      /** A line below every answer on a card, such as "generated by AI": a text, or one in each language. Default: none. */
      footer?: string | {
        zh: string;
        en: string;
      };
      /** Ask people to rate answers: by thumbs on the card, or by these reactions to it. Default off. */
      feedback?: boolean;
      /** Turns of a chat and hour that other bots may cause by mentioning this one. Default 0: other bots are ignored. */
      botTurnsPerHour?: number;
      /** Where a person's consent comes back to ingress, as the developer console lists it, such as `https://bot.example.com/feishu/consent`: the code flow. Default: the device flow, which needs no address. */
      consentUrl?: string;
      /** Open ids of people who look after the app: they get the administrator's link where it lacks a permission that people's calls need. Default: none. */
      operators?: (string)[];
      /** Hold calls back before Feishu refuses them. Off only where the platform has no such limits. Default on. */
      rateLimits?: boolean;
    };
  }>;
  /** Facts about a model that the built-in table lacks or has differently. Prices: USD per million tokens. */
  models?: ({
    id: string;
    provider: string;
    displayName?: string;
    contextWindow: number;
    maxOutputTokens: number;
    inputPricePer1M?: number;
    outputPricePer1M?: number;
    cacheReadPricePer1M?: number;
    cacheWritePricePer1M?: number;
    supportsCaching?: boolean;
    supportsBatch?: boolean;
    supportsThinking?: boolean;
    supportsVision?: boolean;
    supportsJsonSchema?: boolean;
    cachingMinTokens?: number;
    maxTools?: number;
    maxToolsExhaustive?: boolean;
  })[];
  /** Servers with models, by the name that stands before the slash of a model's name. */
  providers?: Record<string, {
    /** The interface it speaks. Absent where a module answers. */
    type?: "anthropic" | "openai" | "openai-responses";
    /** A module in place of an interface: its default export is a model backend, or makes one. A path from the folder of this file, or a package. */
    module?: string;
    /** Its address, as in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`. Default: the vendor's own. */
    baseUrl?: string;
    /** The environment variable of the workers that holds its key. Absent: the server needs none. */
    keyEnv?: string;
    /** Its dialect: the name of a profile, or what is particular about it. Default: by its address and each model. */
    profile?: string | {
      /** The profile that it is like: a name of the documented table. Default: by its address and each model. */
      like?: string;
      /** Fields of a message that hold thoughts. */
      thoughtFields?: (string)[];
      /** Tags around thoughts at the beginning of the text. */
      thoughtTags?: ({
        open: string;
        close: string;
      })[];
      /** The field in which its thoughts go back to it, or `tags` (within the text) or `none`. */
      thoughtsBack?: string;
      /** It refuses a call without thoughts beside it. */
      callsNeedThoughts?: boolean;
      /** How it is asked to think. */
      thoughtRequest?: "reasoning_effort" | "thinking" | "enable_thinking" | "reasoning" | "chat_template_kwargs" | "none";
      /** The form of ids that it demands of calls that another model has made. */
      callIds?: "any" | "functions.name:index" | "nine-letters";
      /** What its words for the end of an answer mean; `again` repeats the request, `overflow` shortens the conversation. */
      ends?: Record<string, "end_turn" | "tool_use" | "max_tokens" | "refusal" | "again" | "overflow">;
      /** Codes, and words in any case, of refusals because the request is too long. */
      overflowCodes?: (string)[];
      /** What people read in place of the name of such a call. */
      overflowWords?: (string)[];
      /** Codes of refusals by its filter of contents. */
      filterCodes?: (string)[];
      /** Its field for the limit of the answer. */
      limitField?: "max_tokens" | "max_completion_tokens";
      /** Limits of pictures: longest side and pixels, bytes of one, number of a request. */
      pictures?: {
        maxSide?: number;
        maxPixels?: number;
        maxBytes?: number;
        maxCount?: number;
      };
      /** Keywords of JSON Schema that it refuses in tools. */
      schemaWithout?: (string)[];
    };
    /** What goes with every request to it. */
    extra?: {
      /** Fields of the body, such as `service_tier`, or a router's `provider`. */
      body?: Record<string, unknown>;
      /** Such as `anthropic-beta`. No secrets: the key of a server is in the variable of its `keyEnv`. */
      headers?: Record<string, string>;
    };
  }>;
  /** What writes down voice messages that the platform has not written down itself. */
  transcription?: {
    /** `<provider>/<model id>`: a server with `/audio/transcriptions`. What is said in voice messages reaches it. */
    model: string;
    /** Largest recording. Default 10,000,000. */
    maxBytes?: number;
  };
  /** Bounds that hold for every agent. */
  limits?: {
    /** A message older than this is late: see `lateMessages`. Default 10 minutes. */
    messageAgeMs?: number;
    /** Largest attachment that is fetched, in bytes. Default 20 MB. */
    attachmentBytes?: number;
    /** Text of one attachment that a model gets, in characters. Default 60,000. */
    attachmentChars?: number;
    /** Longest time for fetching everything a message refers to. Default 30 s. */
    attachmentTimeoutMs?: number;
    /** CPU time for extracting the text of one attachment. Default 5 s. */
    attachmentCpuMs?: number;
    /** Longest user message, in characters. Default 50,000. */
    messageChars?: number;
    /** Calls of one model step that are run; the rest get an error result. Default 64. */
    maxCallsPerStep?: number;
    /** Hand-overs from one agent to another in a turn. Default 8. */
    handoffsPerTurn?: number;
    /** Model steps of one message and all helpers below it. Default 64. */
    stepsPerTurn?: number;
    /** Longest time one tool call may run. Default 10 minutes. */
    toolTimeoutMs?: number;
    /** How long a call waits for a runner on top of that. Default 30 s. */
    toolWaitMs?: number;
    /** Longest tool result that the model gets, in characters. Default 100,000. */
    maxResultChars?: number;
    /** Text, thinking and tool arguments of one model step, in bytes; more is cut. Default 1,000,000. */
    stepBytes?: number;
    /** How long a model may send no byte before its fallback is asked. Default 30 s. */
    modelSilenceMs?: number;
    /** The same until the first word of one that thinks over Chat Completions. Default 5 minutes. */
    modelThinkingMs?: number;
    /** How long a step is tried again after all its models have failed. Default 5 minutes. */
    modelRetryMs?: number;
  };
  /** How the bot behaves on Feishu, whichever agent answers. */
  feishu?: {
    /** A reaction on every message until it is answered; costs two calls each. Default off. */
    typing?: boolean;
    /** How a person sees that their message waits. Default `reaction`. */
    queueNotice?: "reaction" | "line" | "off";
    /** What a message that came late gets: the question whether to run it, or a line. Default `ask`. */
    lateMessages?: "ask" | "line";
    /** Greet chats that the bot is added to and people who open it. Default on. */
    welcome?: boolean;
    /** What a press on a menu entry of the bot says, by event key. */
    menu?: Record<string, string>;
    /** API calls a month that the app's edition allows (10,000 in the free one). Default: not limited. */
    monthlyCalls?: number;
    /** Cards that one answer may fill; the rest of it is one file. Default 5. */
    maxCards?: number;
    /** A line below every answer on a card, such as "generated by AI": a text, or one in each language. Default: none. */
    footer?: string | {
      zh: string;
      en: string;
    };
    /** Ask people to rate answers: by thumbs on the card, or by these reactions to it. Default off. */
    feedback?: boolean;
    /** Turns of a chat and hour that other bots may cause by mentioning this one. Default 0: other bots are ignored. */
    botTurnsPerHour?: number;
    /** Where a person's consent comes back to ingress, as the developer console lists it, such as `https://bot.example.com/feishu/consent`: the code flow. Default: the device flow, which needs no address. */
    consentUrl?: string;
    /** Open ids of people who look after the app: they get the administrator's link where it lacks a permission that people's calls need. Default: none. */
    operators?: (string)[];
    /** Hold calls back before Feishu refuses them. Off only where the platform has no such limits. Default on. */
    rateLimits?: boolean;
  };
  /** What is taken from webhooks. */
  webhook?: {
    /** Further forms of `X-Lark-Request-Timestamp`, as regular expressions of the whole text whose named groups give its instant: `seconds` (10 digits), `millis` (13), `micros` (16), or `year`, `month`, `day`, `hour`, `minute`, `second` and `zone` (`Z`, `UTC`, `+0800` or `+08:00`). */
    timestampForms?: (string)[];
  };
  /** Each door is shut unless it stands here. */
  doors?: {
    /** `POST /v1/triggers/<name>`, signed with `TRIGGER_SECRET_<NAME>`. */
    triggers?: Record<string, {
      /** The bot that answers. Default `default`. */
      bot?: string;
      /** The chat that the answer comes to. */
      chat: string;
      /** Default: the agent of that chat. */
      agent?: string;
      /** What is to be done with what comes. */
      task?: string;
      /** Requests a minute. Default 60. */
      perMinute?: number;
    }>;
    /** `POST /v1/messages`. */
    messages?: {
      /** Callers of the HTTP API that may write to people and chats: names of their keys; `api` is that of `API_TOKEN`. */
      callers: (string)[];
      /** Messages an hour to one person or chat. Default 20. */
      perHour?: number;
      /** Hold them back from 22:00 to 08:00 of the person. Default on. */
      quietHours?: boolean;
    };
    /** What a reaction to an answer says, by type of the emoji, such as `OK` or `Pin`. */
    reactions?: Record<string, string>;
    /** Answer comments in documents that mention the bot. Default off. */
    comments?: boolean;
    /** Work on tasks for which the bot is made responsible. Default off. */
    tasks?: boolean;
    /** Approvals of a form start runs: their changes in a chat, or what waits for a person in theirs. */
    approvals?: Record<string, {
      /** The bot whose app subscribes. Default `default`. */
      bot?: string;
      /** Of the form, as the address of its page in the approval console has it. */
      code: string;
      /** The chat that the answers come to; the bot acts there. Without it, the person who has to decide gets the answer in their own chat, and calls act as that person. */
      chat?: string;
      /** Default: the agent of that chat. */
      agent?: string;
      /** What is to be done. */
      task?: string;
    }>;
    /** What happens to a person starts the schedules with which they wait for it. */
    personal?: {
      /** What schedules may wait for. */
      events: ("meeting-ended" | "minutes-ready" | "mail" | "calendar")[];
      /** Runs of a person an hour that events start. Default 20. */
      perHour?: number;
    };
  };
  /** Who gets the events and clicks of the platform that Larkline has no use for itself. */
  events?: {
    /** Modules whose default export wants them: paths from the folder of this file, or packages. */
    modules?: (string)[];
    /** They are sent there, signed with `EVENTS_SIGNING_KEY`; https, or http on this machine. */
    url?: string;
  };
  /** A role: people by open_id, and user groups of the platform. */
  roles?: Record<string, {
    /** How people read its name: a text, or one in each language. */
    title?: string | {
      zh: string;
      en: string;
    };
    people?: (string)[];
    groups?: (string)[];
  }>;
  /** One entry of the policy; the first that fits a call decides. */
  permissions?: ({
    /** Names of tools; `*` stands for any characters. */
    tools: (string)[];
    /** Pattern of what the tool does, such as `git *`. */
    subject?: string;
    people?: (string)[];
    roles?: (string)[];
    chats?: (string)[];
    chatTypes?: ("p2p" | "group" | "api")[];
    do: "allow" | "ask" | "refuse";
    /** Default: those of `approvals`. */
    approvers?: {
      /** Default: true where neither people nor roles nor operators are named. */
      requester?: boolean;
      people?: (string)[];
      roles?: (string)[];
      /** Operators of the console, too; all of them count as one person. Default false. */
      operators?: boolean;
      /** The requester's own approval does not count. Default false. */
      fourEyes?: boolean;
      /** How many people have to approve. Default 1. */
      count?: number;
    };
    /** Offer "always allow in this chat", and let such rules count. Default false. */
    remember?: boolean;
    /** What people, or for `refuse` the model, read: a text, or one in each language. */
    reason?: string | {
      zh: string;
      en: string;
    };
    /** Default: that of `approvals`. */
    expiresMs?: number;
  })[];
  /** How people are asked where no entry says it. */
  approvals?: {
    /** Who may approve: the person whose message led to the call, unless others are named. */
    approvers?: {
      /** Default: true where neither people nor roles nor operators are named. */
      requester?: boolean;
      people?: (string)[];
      roles?: (string)[];
      /** Operators of the console, too; all of them count as one person. Default false. */
      operators?: boolean;
      /** The requester's own approval does not count. Default false. */
      fourEyes?: boolean;
      /** How many people have to approve. Default 1. */
      count?: number;
    };
    /** How long a question stands. Default 24 hours. */
    expiresMs?: number;
    /** How long a remembered decision holds. Default 90 days. */
    rulesExpireMs?: number;
    /** Offer "always allow in this chat". Default true. */
    remember?: boolean;
    /** What becomes of calls whose input fits a risk pattern. Default `suggest`. */
    risky?: "suggest" | "ask";
    /** What becomes of a `once` call that may have taken effect. Default `ask_feishu`. */
    unknownOutcome?: "ask" | "ask_feishu" | "tell";
    /** Approvals of one kind after which a rule is proposed; 0: never. Default 3. */
    learnAfter?: number;
    /** Rejections in one turn after which further calls are refused without asking. Default 3. */
    maxDenials?: number;
  };
  budgets?: {
    /** IANA name of the zone whose days and months are meant. Default Asia/Shanghai. */
    timeZone?: string;
    /** Whom people should ask for more. Default: the administrator, without a name. */
    contact?: string;
    /** What may be spent in one calendar day or month. */
    limits?: ({
      /** Who shares it; `deployment`: everybody together. */
      per: "person" | "chat" | "agent" | "tenant" | "deployment";
      /** Calendar periods of the policy's time zone. */
      period: "day" | "month";
      /** Ids it is for; without ids and roles: all of the kind, each for themselves. */
      of?: (string)[];
      /** Roles whose people it is for. */
      roles?: (string)[];
      /** Tokens that models read and wrote, cached ones included. 0: nothing at all. */
      tokens?: number;
      /** US dollars. 0: nothing at all. */
      usd?: number;
      /** Those it names have no limit. */
      unlimited?: true;
    })[];
  };
  /** Servers of tools, by a name that begins the names of their tools. Each is a program or an address. */
  mcp?: {
    servers?: Record<string, {  }>;
  };
  /** Runners by name, with what belongs to each. */
  runners?: Record<string, {
    /** Names of tools, or prefixes such as `mail_*`, that belong to it: what other runners offer under these names is not used. A name that no runner has here belongs to the first one that offers it. */
    tools?: (string)[];
  }>;
  /** How people read the names of tools whose authors gave them no title in their language, by name. */
  toolTitles?: Record<string, string | {
    zh: string;
    en: string;
  }>;
  /** Modules whose default export is an observer, or several: paths from the folder of this file, or packages. */
  observers?: (string)[];
  /** How long what is stored is kept. 0 days: for good. */
  retention?: {
    /** Conversations, after their last message. Default 90 days. */
    conversationDays?: number;
    /** Messages of one conversation that are kept although no model sees them any more. Default 1,000. */
    historyMessages?: number;
    /** Records of the audit log. Default 365 days. */
    auditDays?: number;
    /** About how many records the audit log has at most, the oldest go first. Default 1,000,000. */
    auditRecords?: number;
    /** Files and images, after they were last stored. Default 7 days. */
    blobDays?: number;
    /** Memories of people and chats, after their last use. Default 365 days. */
    memoryDays?: number;
    /** What was done for each message, for "Why no answer?", after its last step. Default 3 days. */
    traceDays?: number;
    /** How people have rated answers. Default 90 days. */
    ratingDays?: number;
  };
  /** What an operator accepts of the sandboxes of runners. */
  sandbox?: {
    /** Accepts a sandbox in which programs get more than twice the memory that they may have. Default: refused. */
    allowUnboundedMemory?: boolean;
  };
  /** The console as people reach it. */
  console?: {
    /** Its address: traces below answers are links then. Default: no links. */
    url?: string;
    /** Lists of runs and sessions have the first 60 characters of what was asked, and the beginning of what failed calls said: for operators who ask for it, with a record of each look. Default: no. */
    questions?: boolean;
    /** Operators may change agents, within what this file allows. Default: no. */
    changes?: boolean;
    /** Operators may add servers of models, at public https addresses; `hosts` (`host` or `host:port`) may be private and without https, too. Needs `changes`. Default: no. */
    models?: boolean | {
      hosts: (string)[];
    };
  };
  /** The currency in which cards show what an answer has cost. Default: US dollars, as in prices and budgets. */
  currency?: {
    /** Its code, such as `CNY`. */
    code: string;
    /** How much of it a US dollar is. */
    perUsd: number;
  };
};
