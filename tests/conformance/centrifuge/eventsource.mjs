// The part of a browser's EventSource that the SDK needs, since Node has none.

export class EventSource {
  constructor(url) {
    this.abort = new AbortController();
    this.run(url).catch(() => {}).then(() => this.isClosed || this.onerror?.(new Event('error')));
  }

  close() {
    this.isClosed = true;
    this.abort.abort();
  }

  async run(url) {
    const answer = await fetch(url, { signal: this.abort.signal, headers: { Accept: 'text/event-stream' } });
    if (answer.status !== 200 || !answer.headers.get('content-type').startsWith('text/event-stream')) return;
    this.onopen?.(new Event('open'));
    const decoder = new TextDecoder();
    let text = '';
    for await (const bytes of answer.body) {
      text += decoder.decode(bytes, { stream: true }).replaceAll('\r\n', '\n');
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const lines = text.slice(0, end).split('\n').filter((line) => line.startsWith('data:'));
        text = text.slice(end + 2);
        const data = lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n');
        if (lines.length > 0) this.onmessage?.({ data });
      }
    }
  }
}
