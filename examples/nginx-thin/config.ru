# The benchmark's application: a reply of about 4 KB.
require 'sinatra/base'

class App < Sinatra::Base
  set :environment, :production
  set :logging, false
  BODY = ('x' * 79 + "\n") * 51

  get('/') { BODY }
end

run App
