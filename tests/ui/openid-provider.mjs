// A provider of OpenID Connect for the tests: npm's oidc-provider, with its own forms.
import { Provider } from 'oidc-provider';

const [port, redirect, home] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'pages',
    client_secret: 'a secret+of/the pages',
    redirect_uris: [redirect],
    post_logout_redirect_uris: [home],
  }],
  claims: { openid: ['sub'], profile: ['groups'] },
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, groups: ['team', 'not a name'] }),
  }),
  pkce: { required: () => true },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
